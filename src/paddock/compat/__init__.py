"""Interfaces of other launchers, for code that was written for them."""
