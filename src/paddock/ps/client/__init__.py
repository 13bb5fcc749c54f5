"""The trainer's half of the parameter server: a Client, and the orders of `paddock ps`.

client             the calls of a trainer
strategy, geo      sync, half_async, async, staleness and geo: flags and waits
geo_copy           the local copy of geo, which learns by itself; pure
server_group       all servers of the job: pulls, pushes, waiting until pushes are acknowledged
server_connection  one server: its links, unacknowledged frames, resending
partition          rows and vectors -> the frames of each server
redirect           a shard has moved: learns the owner, sends again
reduce             all_reduce
trainer_config     Paddle's environment: role, number, servers; secrets; arguments come first
waiting            whom a trainer has waited for, as lines
checkpoints        save and load by all servers, and the files that a server cannot see
admin, transfer    `paddock ps`: orders to running servers; export and import
"""
