"""Formats: a block of a file becomes a batch; a module for each, vectorised.

format          what every format is: parse, bad lines, coverage of slots
slots           slot text, PaddleRec's own; slot_kernel is its compiled half
slot_kernel     slot text byte by byte, compiled by numba
criteo          Criteo's raw TSV
csv             CSV with or without a header
parquet         Parquet by row groups (pyarrow)
table           columns of CSV and Parquet: label, id, hash, number
samples         examples that a user's program made become columns
columns         packs, joins, cuts and orders batches
numbers         integers and decimal numbers in text, compiled and plain
hashing         ids of texts: XXH3 of column and value
"""
