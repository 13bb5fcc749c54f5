"""Saving and loading a whole job: the client asks every server for its part, then commits.

A crash at any moment leaves the checkpoint before it as the newest. The directory must be one
that all servers and this process see.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.peer import Peer
from paddock.ps.durable.checkpoint import (
    Checkpoint,
    check_specs,
    latest_name,
    open_checkpoint,
)
from paddock.ps.durable.saving import abandon_checkpoint, begin_checkpoint, commit_checkpoint
from paddock.ps.protocol.frames import Op
from paddock.ps.spec import TableSpec, from_json, to_json

MODES = ("full", "delta")
LOADS_MAX = 5  # of one order, while shards move


def save(peers: Sequence[Peer], directory: str, mode: str, job: str, *, keep: int = 3) -> str:
    """Write a checkpoint; its name. mode "delta": the rows changed since the newest one there."""
    if mode not in MODES:
        raise UsageError(f"save mode {mode!r} is unknown", hint="full or delta")
    path = Path(directory).absolute()
    base = None
    if mode == "delta" and latest_name(path) is not None:
        base = open_checkpoint(path, job=job)
    facts = peers[0].ask(Op.CONTROL, {"do": "progress"})
    step = int(facts["step"])
    name = begin_checkpoint(path, step)
    order = {
        "do": "save",
        "directory": str(path),
        "name": name,
        "base": base.name if base is not None else "",
    }
    try:
        for peer in peers:
            peer.ask(Op.CONTROL, order, wait=True)
        commit_checkpoint(
            path,
            name,
            job=job,
            step=step,
            servers=len(peers),
            positions=facts["positions"],
            base=base,
            keep=keep,
        )
    except BaseException:
        abandon_checkpoint(path, name)
        raise
    return name


def load(peers: Sequence[Peer], directory: str, job: str | None, name: str = "") -> Checkpoint:
    """Have every server read its share of a checkpoint, the newest or the one named.

    job: whose it must be; None takes any job's. Tables that the servers have not are made.
    """
    checkpoint = open_checkpoint(Path(directory).absolute(), name=name or None, job=job)
    held = [specs_of(peer) for peer in peers]
    for specs in held:
        check_specs(checkpoint, specs)
    for peer, specs in zip(peers, held, strict=True):
        names = {spec.name for spec in specs}
        for spec in checkpoint.specs:
            if spec.name not in names:
                peer.ask(Op.CREATE, to_json(spec))
    order = {
        "directory": str(checkpoint.path.parent),
        "name": checkpoint.name,
        "checksum": checkpoint.checksum,
    }
    # All of them can, before the first one does.
    for peer in peers:
        peer.ask(Op.CONTROL, {"do": "check load", **order}, wait=True)
    for _ in range(LOADS_MAX):
        before = _places(peers)
        for peer in peers:
            peer.ask(Op.LOAD, order, wait=True)
        if _places(peers) == before:
            return checkpoint
    raise PaddockError(
        f"shards moved while {checkpoint.path} was loaded: some may not have been read",
        hint="load again when no shard moves",
        retryable=True,
    )


def _places(peers: Sequence[Peer]) -> list[object]:
    """Which shards each server has, and which it gave away last."""
    told = [peer.ask(Op.CONTROL, {"do": "tables"})["tables"] for peer in peers]
    return [(one["owned"], one["moves"]["given"]) for tables in told for one in tables]


def specs_of(peer: Peer) -> list[TableSpec]:
    """The tables that a server has."""
    found = peer.ask(Op.CONTROL, {"do": "tables"})["tables"]
    return [from_json(table["spec"]) for table in found]
