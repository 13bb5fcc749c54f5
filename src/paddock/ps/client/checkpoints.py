"""Saving and loading a whole job: the client asks every server for its part, then commits.

A crash at any moment leaves the checkpoint before it as the newest. Servers that see this
process's directory write and read there. The files of the others travel, a piece a frame, a server
after the other; the other side of it is storage/spool.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.server_connection import OnProgress, ServerConnection, no_progress, order_all
from paddock.ps.spec import from_json, to_json
from paddock.ps.storage.checkpoint import (
    MANIFEST,
    PART,
    SAME,
    Checkpoint,
    check_specs,
    latest_name,
    open_checkpoint,
)
from paddock.ps.storage.files import sync_files, sync_path, writing
from paddock.ps.storage.saving import abandon_checkpoint, begin_checkpoint, commit_checkpoint
from paddock.ps.storage.spool import LOAD, SAVE
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import BODY_MAX, Op
from paddock.ps.wire.offsets import lowest

MODES = ("full", "delta")
# The coordinator completes no step for so long while a save begins.
HOLD_SECONDS = 5.0
LOADS_MAX = 5  # of one order, while shards move
SAVES_MAX = 3  # of one order, while servers are started again
PIECE = BODY_MAX // 2  # With the file's name it is a frame.


def check_save(peers: Sequence[ServerConnection], directory: str) -> list[int]:
    """The check that this process can write there, and each server there or on its own disk, before
    hours of training. Returns those servers whose part is fetched, as they do not see it.

    Raises PaddockError.
    """
    path = Path(directory).absolute()
    name = begin_checkpoint(path, 0)
    try:
        order = {"do": "check save", "directory": str(path), "name": name, "fetch": True}
        answers = [peer.ask(Op.CONTROL, order, wait=True) for peer in peers]
        return [k for k, answer in enumerate(answers) if not answer["sees"]]
    finally:
        abandon_checkpoint(path, name)


def save(
    peers: Sequence[ServerConnection], directory: str, mode: str, job: str, *, keep: int = 3,
    progress: OnProgress = no_progress,
) -> str:  # fmt: skip
    """Write a checkpoint; its name. mode "delta": the rows changed since the newest one there."""
    if mode not in MODES:
        raise UsageError(f"save mode {mode!r} is unknown", hint="full or delta")
    path = Path(directory).absolute()
    base = None
    if mode == "delta" and latest_name(path) is not None:
        base = open_checkpoint(path, job=job)
    for left in reversed(range(SAVES_MAX)):
        try:
            return _save(peers, path, job, base, keep, progress)
        except RequestError as refusal:
            if refusal.code != "deadline" or not left:
                raise  # Else a server does not keep its cut any more: it was started again, say.
    raise AssertionError("one of them has returned or raised")


def _save(
    peers: Sequence[ServerConnection], path: Path, job: str, base: Checkpoint | None, keep: int,
    progress: OnProgress,
) -> str:  # fmt: skip
    cuts = _take_cuts(peers)
    step = int(cuts[0]["step"])
    name = begin_checkpoint(path, step)
    order = {
        "do": "save",
        "directory": str(path),
        "name": name,
        "base": base.name if base is not None else "",
        "fetch": True,
    }
    try:
        for index, (peer, cut) in enumerate(zip(peers, cuts, strict=True)):
            progress(index, len(peers))
            written = peer.ask(Op.CONTROL, {**order, "cut": cut["cut"]}, wait=True)
            if "files" in written:
                _fetch(peer, written["files"], path / f"{name}.tmp" / f"server-{index}")
        commit_checkpoint(
            path,
            name,
            job=job,
            step=step,
            servers=len(peers),
            positions={t: m.position for t, m in lowest([one["marks"] for one in cuts]).items()},
            base=base,
            keep=keep,
        )
    except BaseException:
        abandon_checkpoint(path, name)
        raise
    return name


def _take_cuts(peers: Sequence[ServerConnection]) -> list[dict[str, Any]]:
    """Have each server keep its state of now; in sync, all that of one step.

    The coordinator completes no step meanwhile; what it has done last is carried to all.
    """
    commit = peers[0].ask(Op.CONTROL, {"do": "hold", "seconds": HOLD_SECONDS}).get("commit")
    if commit is not None:
        order_all(peers[1:], Op.COMMIT, commit)
    cuts = [peer.ask(Op.CONTROL, {"do": "cut"}) for peer in peers]
    peers[0].ask(Op.CONTROL, {"do": "hold", "seconds": 0})
    if len({cut["committed"] for cut in cuts}) > 1:
        reason = f"a step was done while the save began: {HOLD_SECONDS:g} s were not enough"
        raise RequestError("deadline", reason, hint="save again")
    return cuts


def load(
    peers: Sequence[ServerConnection], directory: str, job: str | None, name: str = "",
    progress: OnProgress = no_progress,
) -> Checkpoint:  # fmt: skip
    """Have every server read its share of a checkpoint, the newest or the one named.

    job: whose it must be; None takes any job's. Tables that the servers have not are made.
    """
    checkpoint = open_checkpoint(Path(directory).absolute(), name=name or None, job=job)
    held = [[from_json(table["spec"]) for table in peer.tables()] for peer in peers]
    for specs in held:
        check_specs(checkpoint, specs)
    for peer, specs in zip(peers, held, strict=True):
        names = {spec.name for spec in specs}
        for spec in checkpoint.specs:
            if spec.name not in names:
                peer.ask(Op.CREATE, to_json(spec))
    orders = [_check_load(peer, checkpoint) for peer in peers]
    for _ in range(LOADS_MAX):
        before = _places(peers)
        for index, (peer, order) in enumerate(zip(peers, orders, strict=True)):
            progress(index, len(peers))
            peer.ask(Op.LOAD, order, wait=True)
        if _places(peers) == before:
            for peer, order in zip(peers, orders, strict=True):
                if order["directory"] != str(checkpoint.path.parent):
                    files = LOAD + checkpoint.checksum
                    peer.ask(Op.CONTROL, {"do": "forget", "files": files})
            return checkpoint
    raise PaddockError(
        f"shards moved while {checkpoint.path} was loaded: some may not have been read",
        hint="load again when no shard moves",
        retryable=True,
    )


def _check_load(peer: ServerConnection, checkpoint: Checkpoint) -> dict[str, Any]:
    """The order to load it, which this server can carry out: so all can, before the first does.

    What a server does not see it is sent first.
    """
    order = {
        "directory": str(checkpoint.path.parent),
        "name": checkpoint.name,
        "checksum": checkpoint.checksum,
    }
    answer = peer.ask(Op.CONTROL, {"do": "check load", **order, "send": True}, wait=True)
    if "into" in answer:
        _send(peer, checkpoint)
        order["directory"] = str(answer["into"])
        peer.ask(Op.CONTROL, {"do": "check load", **order}, wait=True)
    return order


def _places(peers: Sequence[ServerConnection]) -> list[object]:
    """Which shards each server has, and which it gave away last."""
    return [(one["owned"], one["moves"]["given"]) for peer in peers for one in peer.tables()]


# ----------------------------------------------------------------- files of servers that do not see


def _fetch(peer: ServerConnection, files: Iterable[tuple[str, int]], into: Path) -> None:
    """A server's part of a checkpoint, which it then forgets. files: name there, bytes.

    Raises PaddockError.
    """
    with writing("cannot save a checkpoint", into.parent):
        into.mkdir(parents=True, exist_ok=True)
        for file, size in files:
            with (into / Path(file).name).open("wb") as written:
                while (at := written.tell()) < size:
                    if not written.write(peer.file(Op.READ, file, at)):
                        raise PaddockError(
                            f"server {peer.index}: {file} ends at {at} instead of {size} bytes",
                            hint="save again",
                            retryable=True,
                        )
        sync_files(into)
        sync_path(into)
    peer.ask(Op.CONTROL, {"do": "forget", "files": SAVE})


def _send(peer: ServerConnection, checkpoint: Checkpoint) -> None:
    """Sends a server what it needs to load its share: all manifests, the files of its shards."""
    owned = {table["spec"]["name"]: set(table["owned"]) for table in peer.tables()}
    for one in (checkpoint, *checkpoint.bases()):
        entries = one.entries.values()
        mine = [e for e in entries if e.kind != SAME and e.shard in owned.get(e.table, ())]
        for path in (
            one.path / MANIFEST,
            *sorted(one.path.glob(f"server-*/{PART}")),
            *(one.path / entry.written.file for entry in mine),
        ):
            file = f"{LOAD}{checkpoint.checksum}/{one.name}/{path.relative_to(one.path)}"
            with path.open("rb") as opened:
                at = 0
                while piece := opened.read(PIECE):
                    peer.file(Op.WRITE, file, at, piece)
                    at += len(piece)
