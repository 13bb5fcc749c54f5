"""Chunks of data are leased to the worker that is free, and each record is read once a pass.

messages     what workers and the dispatcher say to one another, and what the dispatcher remembers
state        the dispatcher: leases the next chunk; passes, deaths. It decides, and does no I/O
service      the dispatcher as a service of server 0: messages as JSON, state in the server's log
batches      a worker's side: leases in, batches out, with how far each record was used
clients      how a worker reaches the dispatcher: in its own process, or at server 0
"""
