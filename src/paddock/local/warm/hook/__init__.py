"""The directory that the user's interpreter gets on PYTHONPATH; no other file may be in it.

sitecustomize   the warm server and its ranks, in the user's interpreter
"""
