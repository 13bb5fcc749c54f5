"""Where a worker's batches come from: formats and users' readers, here or in processes."""
