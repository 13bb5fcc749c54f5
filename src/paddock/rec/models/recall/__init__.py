"""Models that find candidates: vectors of words or items."""
