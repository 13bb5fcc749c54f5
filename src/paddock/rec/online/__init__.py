"""Online learning: data comes by the hour, each pass is trained once, models come out as deltas."""
