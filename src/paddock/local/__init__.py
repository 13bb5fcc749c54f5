"""This machine: processes started, watched and ended; devices, ports, logs and the console.

guardian          two nested processes (subreapers), their signals; end all descendants
loop              the one loop of the inner process
node              NodeRunner: this node's part of a job, under the orders of a member
spawn             how a process starts: posix_spawn, its pipes, its pidfd; the user's hook
ending            how a process ended: its last lines, an OOM kill
output            every line of every process: log directory, times, console
report            what people are told: in full, and on the short screen
runs              a launch as a run of this user: its id, its files, its control socket
facts             devices, addresses, ports, memory and keys of this host
portable          systems without pidfd: one machine, simply
warm              warm start (--warm): imported once, and forked into the ranks
"""
