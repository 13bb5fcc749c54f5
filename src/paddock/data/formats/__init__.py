"""Formats: a block of a file becomes a batch; a module for each, vectorised.

format          what every format is: parse, bad lines, coverage of slots
slots           slot text, PaddleRec's own; its slots are found in the first lines
slot_kernel     slot text byte by byte, compiled by numba
criteo          Criteo's raw TSV
table           CSV with or without a header, and Parquet (pyarrow)
samples         examples that a user's program made become columns
numbers         integers and decimal numbers in text, compiled and plain
hashing         ids of texts: XXH3 of column and value
"""
