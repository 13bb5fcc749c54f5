"""What is known of each accelerator: names, the command to ask, how to read its answer."""
