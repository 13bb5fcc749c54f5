"""This machine: processes started, watched and ended; devices, ports, logs and the console.

guardian          two nested processes (subreapers): no orphan outlives the launcher; signals
loop              the event loop of the launcher
node              NodeRunner: this node's part of a job, under the orders of a member
spawn             how a process starts: posix_spawn, its pipes, its pidfd; the user's hook
lingering         the grace of what ended processes have left: a trainer below a shell
ending            how a process ended: its last lines, an OOM kill
output            lines of all ranks, multiplexed: log files, times, console with prefixes
report            messages to the user: in full, and on the short screen
runs              a launch as a run of this user: its id, its files, its control socket
facts             devices, addresses, reserved ports and keys of this host
portable          the launcher of systems without pidfd (Windows, macOS): one machine
warm              warm start (--warm): imported once, and forked into the ranks
"""
