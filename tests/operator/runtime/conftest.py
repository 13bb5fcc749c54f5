"""Hypothesis repeats itself here too (see tests/ps/conftest.py)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "paddock",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("paddock")
