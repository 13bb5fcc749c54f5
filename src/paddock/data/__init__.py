"""Training data: split it, check it, deal it out to workers, and read it once."""
