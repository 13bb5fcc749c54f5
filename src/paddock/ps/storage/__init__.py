"""What outlives the process: the log, snapshots, checkpoints and exports.

log.py       append, wait_durable, read, follow, cut      (segment.py: one file of it)
snapshot.py  a server's own recovery point
saving.py    writes a job's checkpoints; checkpoint.py reads them, delta.py is the arithmetic
spool.py     files for a client that sees another disk: parts that it fetches, or sends
export.py    npz and safetensors; paddle_text.py Paddle's form; serving.py read-only versions
arrays.py    the file of arrays all of them use, safetensors; files.py whole writes and their errors
"""
