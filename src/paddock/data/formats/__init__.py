"""How a block of a file becomes a batch: a module for each format, vectorised."""
