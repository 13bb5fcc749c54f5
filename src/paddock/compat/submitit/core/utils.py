"""The errors of jobs, as submitit.core.utils has them."""

from __future__ import annotations


class UncompletedJobError(RuntimeError):
    """The job was stopped or lost, or has not ended."""


class FailedJobError(UncompletedJobError):
    """The function of the job raised, or its process failed."""
