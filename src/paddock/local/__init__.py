"""One machine: starting, watching and ending processes; devices, ports, logs and the console.

guardian, loop         two nested processes, and the one loop of the inner one
node, spawn, ending    NodeRunner: this node's processes; how they start; what their end tells
sweep, signals, lock   nothing is left behind; what a parent left to us; who may write where
runs, control, record  a launch as a run: its id and record; asking its launcher; JSON files
events                 the states that a run was in, and whether it has ended
output, console, logs  every line to its file and, where wanted, to the console
devices, ports         facts about this host
text, evidence         what people read, and what last words mean
"""
