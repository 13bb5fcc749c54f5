"""Tables of one server: rows by key, or a vector, in shards.

sparse      rows by key; index finds them, accessor admits and drops, initial has first values
dense       a vector
sharding    keys -> shards -> servers; distinct keys, sums by key
index       keys -> rows: a hash table for each shard
accessor    admission, scores, expiry
contributions  gradients of a sync step, held apart until its COMMIT, then added up
initial     first values of rows, as a function of seed and key
states      a shard's state for checkpoints and digests; shards copied on write
memory      arrays that grow in place, and how much memory tables may take
finite      NaN and infinity are found
coerce      a user's keys and values -> arrays, or an error
warm        compiles the loops before the first request
"""
