"""One policy a file: values in, an answer out. reconcile.py asks them in its order."""
