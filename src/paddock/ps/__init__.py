"""The parameter server: dense and sparse tables that several trainers learn together.

Server: ``paddock pserver``. Trainer: ``paddock.ps.Client``, or one of the adapters
``paddock.ps.torch``, ``paddock.ps.paddle``, ``paddock.ps.jax``, ``paddock.ps.fleet``.
Imports nothing of paddock but ``errors``; this file imports nothing until a name is asked for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.ps.client.client import Client as Client
    from paddock.ps.spec import DenseSpec as DenseSpec
    from paddock.ps.spec import OptimizerSpec as OptimizerSpec
    from paddock.ps.spec import SparseSpec as SparseSpec
    from paddock.ps.trainer_init import init as init

_HOMES = {
    "Client": "paddock.ps.client.client",
    "DenseSpec": "paddock.ps.spec",
    "OptimizerSpec": "paddock.ps.spec",
    "SparseSpec": "paddock.ps.spec",
    "init": "paddock.ps.trainer_init",
}

__all__ = ["Client", "DenseSpec", "OptimizerSpec", "SparseSpec", "init"]


def __getattr__(name: str) -> object:
    """Imports the home of a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'paddock.ps' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
