"""This machine: processes started, watched and ended; devices, ports, logs and the console.

guardian, loop           two nested processes (subreapers), and the one loop of the inner one
node                     NodeRunner: this node's part of a job, under the orders of a member
spawn                    how a process starts: posix_spawn, its pipes, its pidfd
ending, oom, evidence    how a process ended: exit, OOM kill, root cause from its last lines
hook                     the user's own command before each attempt (--elastic_pre_hook)
sweep, signals           end all descendants; signals, inherited and forwarded
lock                     one job at a time in a log directory
runs, record, events     a launch as a run: its id, its JSON files, its states
control                  ask the launcher of a run on its socket
output, console          every line to its log file and, where wanted, to the console
logs, times              the log directory; arrival times of a log's lines
noise                    filter of a framework's own log lines
reporter, screen         what people are told: in full, and on the short screen
text, width              the sentences and tables of both, and the terminal's width
devices                  the accelerators of this host
ports, portowner         free ports, and the process that holds one
addresses, credentials   this node's addresses; the job key and TLS, from files
portable                 systems without pidfd: one machine, simply
warm                     warm start (--warm): imported once, and forked into the ranks
"""
