"""The transport between nodes: lines of signed JSON over TCP, with TLS where that is set up.

wire                messages as lines, the ranges of their fields; the handshake and signatures
sockets             the listener and connections of this host
connection          one connection: lines in and out
server, client      the leader's side, which sees missed heartbeats (node lost); a member's side
invite              prints the command that starts the other nodes
"""
