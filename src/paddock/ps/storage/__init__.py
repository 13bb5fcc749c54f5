"""Storage outlives the process: the log, snapshots, checkpoints and exports.

log          append, wait_durable, read, follow, truncate
segment      one file of the log
snapshot     a server's own recovery point
saving       writes a job's checkpoints
checkpoint   reads them, and merges the parts of several servers
delta        arithmetic of checkpoints that hold changed rows only
spool        files for a client that sees another disk: parts that it fetches, or sends
export       npz and safetensors
paddle_text  Paddle's text form
serving      read-only versions for inference
arrays       the file of arrays all of them use: safetensors
files        whole writes and their errors
"""
