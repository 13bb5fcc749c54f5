"""One node among many: who coordinates, and how nodes talk. The map is docs/architecture.md.

launcher               what one launcher owns, from the first rank to the exit code
meet, life, place      who coordinates (asked), what this node is (decided), made so (done)
coordinator, member    the two sides; local/node.py has the member's processes
server, client, wire   the way between them; checks: what a message may say; sockets, connection
view, control          what a node knows of its job; the socket on which it answers
record, recorder       status.json and verdict.json of --record; run_record: of every launch
election               a coordinator elected through etcd; election_state, etcd_succession decide
majority               a coordinator found among the nodes; search decides
"""
