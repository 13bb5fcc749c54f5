"""Paddock starts, supervises and scales distributed training jobs.

launch, submit, sweep      start a job here, on a site, or once for each point of a grid
Run                        what they return: wait for it, its results, status and logs; stop it
make_job, explain          a job (Job) and its plan (Plan) as values; nothing starts
RankFailedError, ...       the rank that failed first, where, and why
rank, world_size, report   and others: for code that runs in a rank

    paddock.launch(train, 0.1, nproc=2).result    # of rank 0

`import paddock` imports none of it: a name comes from its module (api/) once it is used.
__init__.pyi has types.
"""

__version__ = "0.1.0"

_MODULES = {
    "launch": "paddock.api.launch",
    "submit": "paddock.api.submit",
    "sweep": "paddock.api.sweep",
    "Run": "paddock.api.run",
    "make_job": "paddock.api.job",
    "explain": "paddock.api.job",
    "Job": "paddock.core.job",
    "Plan": "paddock.core.plan",
    "RankFailedError": "paddock.api.errors",
    "RunFailedError": "paddock.api.errors",
    "PaddockError": "paddock.errors",
    "UsageError": "paddock.errors",
    **dict.fromkeys(
        ("rank", "world_size", "local_rank", "attempt", "is_first", "should_stop"),
        "paddock.api.ranks",
    ),
    "report": "paddock.watch.rank",
}
_OF_LINUX = ("launch", "submit", "sweep")  # and their imports
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'paddock' has no attribute '{name}'")
    import os

    if name in _OF_LINUX and not hasattr(os, "fork"):  # Windows
        from paddock.errors import of_linux

        return of_linux(f"paddock.{name}")
    from importlib import import_module

    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
