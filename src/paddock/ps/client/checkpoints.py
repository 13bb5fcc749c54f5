"""Saving and loading a whole job: the client asks every server for its part, then commits.

A crash at any moment leaves the checkpoint before it as the newest. The directory must be one
that all servers and this process see.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddock.errors import UsageError
from paddock.ps.client.peer import Peer
from paddock.ps.durable.checkpoint import latest_name, open_checkpoint
from paddock.ps.durable.saving import abandon_checkpoint, begin_checkpoint, commit_checkpoint
from paddock.ps.protocol.frames import Op

MODES = ("full", "delta")


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


def load(peers: Sequence[Peer], directory: str, job: str, name: str = "") -> dict[str, Any]:
    """Have every server read its share of a checkpoint; the trainers' data positions in it."""
    path = Path(directory).absolute()
    checkpoint = open_checkpoint(path, name=name or None, job=job)
    order = {"directory": str(path), "name": checkpoint.name, "checksum": checkpoint.checksum}
    for peer in peers:
        peer.ask(Op.LOAD, order, wait=True)
    return checkpoint.positions
