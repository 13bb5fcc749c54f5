"""Models of images."""
