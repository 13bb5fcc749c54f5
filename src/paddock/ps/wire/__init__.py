"""Frames and what goes in them. Pure: bytes in, values out; no sockets, no clocks, no threads.

frames     Header, Op: a frame of the wire and of the log
handshake  HELLO, WELCOME and proofs of the token
values     dataclasses out of JSON
errors     RequestError and its codes
windows    which pushes of which trainer are applied, so that a repeat changes nothing
offsets    how far each trainer has read its data, committed behind its pushes
"""
