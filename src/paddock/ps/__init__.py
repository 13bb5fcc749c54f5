"""The parameter server: dense and sparse tables that several trainers learn together.

Server: ``paddock pserver``. Trainer: ``paddock.ps.Client``, or one of the adapters
``paddock.ps.torch``, ``paddock.ps.paddle``, ``paddock.ps.jax``, ``paddock.ps.fleet``.
Imports nothing of paddock but ``errors``; this file imports nothing until a name is asked for.

spec          specs of tables, optimizers, admission and schedules
client        the trainer's half: Client, strategies, the orders of `paddock ps`
server        one server: sessions, the engine, the state, recovery
group         trainers: members, steps, barriers, the coordinator
replication   primary and replica, lease, witness
shards        which server owns a shard, and its migration
table         rows, indexes, admission, contributions
optimizers    the rules that the servers run
storage       log, snapshots, checkpoints, exports
wire          frames, handshake, exactly-once windows, offsets
adapters      layers for frameworks, but for what is the framework's
torch, paddle, jax  the adapters' modules
torch_weight  a table as a parameter of torch
fleet         Paddle's fleet names
translate     frameworks' optimizers as the server's rules
trainer_init  `paddock.ps.init`: `paddle.init` of 2017
in_process    servers inside a test or notebook: `paddock.ps.local`
local_tables  tables of this process, called as a client is: training without servers
strategies    the strategies' names, and a sentence for each
honoured      what each strategy does with each option of a table
stream        frames over a socket
connection    one connection to a server: connects, greets, proves
endpoint      host:port
jit, xxh3     numba and xxhash, or what stands in for them
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.ps.client.client import Client as Client
    from paddock.ps.in_process import local as local
    from paddock.ps.spec import AccessorSpec as AccessorSpec
    from paddock.ps.spec import DenseSpec as DenseSpec
    from paddock.ps.spec import InitialSpec as InitialSpec
    from paddock.ps.spec import OptimizerSpec as OptimizerSpec
    from paddock.ps.spec import ScheduleSpec as ScheduleSpec
    from paddock.ps.spec import SparseSpec as SparseSpec
    from paddock.ps.storage.serving import Serving as Serving
    from paddock.ps.trainer_init import init as init
    from paddock.ps.wire.errors import RequestError as RequestError

_HOMES = {
    "AccessorSpec": "paddock.ps.spec",
    "Client": "paddock.ps.client.client",
    "DenseSpec": "paddock.ps.spec",
    "InitialSpec": "paddock.ps.spec",
    "OptimizerSpec": "paddock.ps.spec",
    "RequestError": "paddock.ps.wire.errors",
    "ScheduleSpec": "paddock.ps.spec",
    "Serving": "paddock.ps.storage.serving",
    "SparseSpec": "paddock.ps.spec",
    "init": "paddock.ps.trainer_init",
    "local": "paddock.ps.in_process",
}
_ADAPTERS = ("fleet", "jax", "paddle", "torch")
_NEEDED = ("numpy",)  # Of the extra paddock[ps]; numba and xxhash only make it faster.

__all__ = [*_HOMES]


def __dir__() -> list[str]:
    """The public names, and the adapters' modules; nothing is imported for it."""
    return sorted({*globals(), *_HOMES, *_ADAPTERS})


def __getattr__(name: str) -> object:
    """Imports the home of a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(_unknown(name))
    import importlib

    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        from paddock.errors import extra_hint

        message = f"paddock.ps.{name} needs {error.name} (hint: {extra_hint('ps')})"
        raise ImportError(message, name=error.name) from error


def _unknown(name: str) -> str:
    """The error of a name that is not here, with the nearest one that is."""
    if name in _ADAPTERS:
        return f"paddock.ps.{name} is a module (hint: from paddock.ps import {name})"
    import difflib

    near = difflib.get_close_matches(name, [*_HOMES, *_ADAPTERS], n=1)
    hint = f" (hint: did you mean {near[0]!r}?)" if near else ""
    return f"module 'paddock.ps' has no attribute {name!r}{hint}"
