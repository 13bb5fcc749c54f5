"""Every line of every process: to its log file and, where wanted, to the console.

streams  the thread that multiplexes the processes' pipes
console  the shown lines with their prefixes, and the launcher's own
logs     the log directory: a folder for each run
times    the arrival times of a log's lines
lock     one job at a time in a log directory
noise    filter of a framework's own log lines
"""
