"""Interfaces of other launchers, for code that was written for them.

submitit    submitit 1.5: executors and jobs; `import paddock.compat.submitit as submitit`
"""
