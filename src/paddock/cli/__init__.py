"""The commands: parse, then import only what was chosen."""
