"""The names of submitit.core.

utils       UncompletedJobError, FailedJobError
"""
