"""Readable transcripts of the state machines, replayed by test_scenarios.py."""
