"""Every picture of the docs, made by a program: `make pictures` writes docs/pictures/."""
