"""Real servers and trainers that read a stream and count, in a table, what they were given.

Record i is the line "i"; training it adds 1 to key i. So the table says how often each was trained.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from paddock.data import DataStream, stream
from paddock.data.dispatch.service import SERVICE, DispatcherService
from paddock.ps.client.client import Client
from paddock.ps.client.server_connection import ServerConnection
from paddock.ps.server.main import make_server
from paddock.ps.server.options import read_options
from paddock.ps.server.serve import Server
from paddock.ps.spec import InitialSpec, OptimizerSpec, SparseSpec
from ps.client.running import Fleet

COUNTS = SparseSpec(
    "counts", 1, OptimizerSpec("sgd", 1.0), initial=InitialSpec("zeros"), merge="sum"
)


class DataFleet(Fleet):
    """Servers of which the first one hosts the dispatcher."""

    def _make(self, index: int) -> Server:
        words = [
            f"--port={self.ports[index]}",
            f"--index={index}",
            f"--endpoints={self.endpoints}",
            *self.words,
        ]
        if self.data is not None:
            words.append(f"--data-dir={self.data / str(index)}")
        server = make_server(read_options(words, {}), {SERVICE: DispatcherService()})
        server.start()
        return server


class DiedError(Exception):
    """The trainer's process is no more."""


def write_records(folder: Path, count: int, files: int = 3) -> Path:
    """Records 0 to count - 1 in files of about the same size."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, part in enumerate(np.array_split(np.arange(count), files)):
        (folder / f"part-{file}").write_text("".join(f"{i}\n" for i in part))
    return folder


def open_stream(ps: Client, folder: Path, **options: Any) -> DataStream:
    """Chunks of about 12 records, batches of 5."""
    return stream(folder, **{"batch_size": 5, "client": ps, "chunk_bytes": 40, **options})


def train(
    ps: Client,
    folder: Path,
    *,
    passes: int = 1,
    before: Callable[[int], None] = lambda batch: None,
    **options: Any,
) -> int:
    """The script of a trainer; how many records it was given. before: called with each batch."""
    ps.create(COUNTS)
    data = open_stream(ps, folder, passes=passes, **options)
    given = 0
    for _ in data.epochs():
        for lines in data:
            before(given)
            ps.push("counts", [int(line) for line in lines], -np.ones((len(lines), 1), np.float32))
            ps.step()
            given += len(lines)
    return given


def counts(servers: Fleet, records: int, **settings: Any) -> list[int]:
    """How often each record was trained."""
    total = np.zeros(records)
    for server in servers.servers:
        held = server.store.by_name["counts"]
        rows = np.empty((records, 1), np.float32)
        held.table.pull(np.arange(records), rows)  # type: ignore[arg-type, call-arg]  # sparse
        total += rows.ravel()
    return [round(n) for n in total]


class Mortal:
    """A trainer that dies at its `left`-th frame or question, before or after it is sent.

    lost: frames that were still in its memory, the newest of each server.
    """

    def __init__(self, ps: Client, draw: random.Random, left: int) -> None:
        self.ps = ps
        self.left = left
        self.draw = draw
        for peer in ps.peers:
            self._weaken(peer, draw.randrange(4))

    def _die(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise DiedError

    def _weaken(self, peer: ServerConnection, lost: int) -> None:
        send, held = peer.post, list[tuple[Any, ...]]()

        def later(*frame: Any) -> None:
            self._die()
            held.append(frame)
            while len(held) > lost:
                send(*held.pop(0))

        def settle(oldest: int) -> None:
            while held and oldest > held[0][0]:
                send(*held.pop(0))
            ServerConnection.wait_acked(peer, oldest)

        def ask(*what: Any, **how: Any) -> dict[str, Any]:
            is_before = self.draw.random() < 0.5
            if is_before:
                self._die()
            answer = ServerConnection.ask(peer, *what, **how)
            if not is_before:
                self._die()
            return answer

        peer.post, peer.wait_acked = later, settle  # type: ignore[method-assign]
        peer.ask = ask  # type: ignore[method-assign]

    def end(self) -> None:
        """The kernel closes its connections."""
        for peer in self.ps.peers:
            peer.end()
