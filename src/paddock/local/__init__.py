"""The shell of one machine: the only place that starts and signals processes."""
