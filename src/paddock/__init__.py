"""Paddock starts, supervises and scales distributed training jobs."""

__version__ = "0.1.0"
