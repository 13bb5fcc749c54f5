"""Pure: when a trainer waits, and which contributions make a step."""
