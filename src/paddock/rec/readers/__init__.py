"""Readers make a worker's batches: of formats and users' code, in threads or processes.

source       a Reading -> the batches of an epoch, from chunks; the offset of each is exact
read_ahead   chunks are parsed ahead, in threads or processes, in their order
pipe         `pipe_command`, a filter between the data and the parser
paddlerec    users' reader.py of PaddleRec, and the modules that it imports
"""
