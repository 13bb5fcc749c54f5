"""Figures of Paddock beside other launchers, measured in the same run: ``python -m benchmarks``."""
