"""How nodes talk: lines of signed JSON over TCP, with TLS where that is set up.

wire                what a line says, and the handshake
checks              what a message may say, beside the types of its fields
sockets             the listener and connections of this host
connection          one connection: lines in and out
server, client      the leader's side and the member's
invite              tells waiting nodes where the leader is
"""
