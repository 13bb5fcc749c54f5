"""One machine: starting, watching and ending processes; devices, ports, logs and the console.

guardian, loop         two nested processes, and the one loop of the inner one
node                   NodeRunner: this node's part of a job, which a member orders about
spawn, ending, oom     how a process starts; what its end tells; kills for want of memory
hook                   the user's own command before each attempt (--elastic_pre_hook)
sweep, signals, lock   nothing is left behind; what a parent left to us; who may write where
runs, control, record  a launch as a run: its id and record; asking its launcher; JSON files
events                 the states that a run was in, and whether it has ended
output, console, logs  every line to its file and, where wanted, to the console
noise, times           a framework's own lines; when each line came
reporter, screen       what people are told, in full and short; text, width: the words, as tables
evidence               what last words mean
devices                the accelerators of this host
ports, portowner       free ports, and who holds one; addresses: by which this node is known
credentials            the job key and TLS, from files
portable               systems without pidfd: one machine, simply
warm/                  --warm: imported once, and forked into the ranks
"""
