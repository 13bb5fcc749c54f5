"""Three generations of config.yaml and two of backend.yaml, read into one typed value."""
