"""Tables in memory: where rows live, how they are found, made, updated and dropped."""
