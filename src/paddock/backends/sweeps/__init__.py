"""Sweeps: one command line for every point of a grid, N runs at once, a table at the end.

grid         NAME=VALUES -> points: their values, names and arguments; pure
machine      the states of the points: the next start, retry or stop; pure
results      the table of a sweep: sorted, as text, CSV or JSON; pure
follow       the sweep's directory, and the loop that starts and asks its runs
"""
