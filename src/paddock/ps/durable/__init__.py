"""What outlives the process: the log, snapshots, checkpoints and exports."""
