"""Models that say how likely a click is."""
