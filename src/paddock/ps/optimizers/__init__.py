"""Server-side optimizers, one file each; the table that names them is in ``table.py``."""
