"""For the parameter server's suites: hypothesis repeats itself, and no clock judges it."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "paddock",
    deadline=None,  # A loaded machine is not a bug; the limit on each test stands.
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("paddock")
