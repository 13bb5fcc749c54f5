"""One node among many: who leads (coordinates), and how nodes talk. docs/architecture.md has more.

launcher               what one launcher owns, from the first rank to the exit code
meet, invite           who leads at first; how other nodes get in
life, life_words       the state machine of leadership, and its events and orders
place, reign           carries them out; one leader's time, with its listener, links and timers
election               leaders found through etcd: its elector, and the thread that asks etcd;
                       election_state, election_words, etcd_succession decide
majority               leaders found among the nodes; search decides
coordinator, member    the two sides; local/node.py has the member's processes
server, client         the listener of a leader; the way to it
wire, checks           lines, the handshake and signatures; what a message may say
sockets, connection    TCP and TLS on the loop
view, control          what a node knows of its job; the socket on which it answers
record, recorder       status.json and verdict.json of --record; run_record: of every launch
"""
