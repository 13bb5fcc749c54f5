"""The directory that the user's interpreter gets on PYTHONPATH; nothing else may be in it."""
