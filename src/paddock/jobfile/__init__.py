"""Read flags, environment and PaddleJob files into a Job, remembering each source."""
