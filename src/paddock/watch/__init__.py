"""See a run while it goes: progress, samples, stalls, stacks, and what its time was spent on.

progress  a script's log lines -> step, epoch, loss, rate
rank      the pipe of a rank's and a server's own reports: paddock.report
servers   the row of a parameter server's counters
metrics   what Prometheus reads of a run, and the port that answers
history   the rows of history.jsonl: written, kept small, read
procfs    a process from outside: CPU time, memory, bytes, state
events    event files of TensorBoard and VisualDL -> step, values
devices   the use and memory of GPUs and others, by their vendors' tools
stalls    has everything stopped moving, and who is the suspect
stacks    the stacks of all ranks, grouped
debugged  the stack and collective that a rank of --debug-ranks writes itself
folder    stacks of launchers on other hosts, asked for by files
watcher   the launcher's thread that does all this
looks     what it looks at, and the rows that it writes
slow      which rank may hold the others up, and what is seen of it
view      a run as people look at it: ranks now, curves, attempts
meter     how far our own work is: one line on a terminal
svg       curves, timelines and bars as SVG
bill      what the rank-seconds of a run were spent on
"""
