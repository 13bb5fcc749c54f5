"""Paddock starts, supervises and scales distributed training jobs.

From Python: `paddock.launch(train, nproc=2)` (api/__init__.py says where the rest is). `import
paddock` imports none of it: a name comes from its module once it is used. __init__.pyi has types.
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
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'paddock' has no attribute '{name}'")
    from importlib import import_module

    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
