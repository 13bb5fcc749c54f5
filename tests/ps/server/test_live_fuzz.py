"""A live server and mutants of what a real trainer said to it, with another trainer beside it.

PADDOCK_PS_MUTATIONS: mutants in all (6000). PADDOCK_PS_SEED: the seed (1).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
import pytest

from paddock.ps import Client, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.client.admin import Admin, AdminSettings
from paddock.ps.server.records import FROM_CLIENTS
from paddock.ps.spec import AccessorSpec, InitialSpec, ScheduleSpec
from paddock.ps.stream import ConnectionClosed, FrameStream
from paddock.ps.wire.errors import Code, RequestError
from paddock.ps.wire.frames import FIRST_RECORD, FrameFlag, Header, Op
from paddock.ps.wire.handshake import Hello
from paddock.ps.wire.values import to_body
from ps.client.running import Fleet, fleet
from ps.real.proxy import Proxy, proxied
from ps.real.work import train
from ps.running import eventually
from ps.server.mutants import Mutant, Said, mutant, read_conversation, whole

SEED = int(os.environ.get("PADDOCK_PS_SEED", "1"))
MUTATIONS = int(os.environ.get("PADDOCK_PS_MUTATIONS", "6000"))
HONEST, HOSTILE = 0, 1
RECORDED_STEPS = 3
# Of mutants, before the honest trainer is let do one more step and the tables are looked at.
PACE = 250
# Said again rarely, one time of so many: each takes a snapshot.
RARELY, RARE = 20, ("0 LOAD", "1 LOAD")
MEMORY_MAX_BYTES = 128 << 20
WAIT_SECONDS = 0.02
ANSWER, ERROR, CONTRIBUTION, LAST, REPEATED = map(
    int,
    (FrameFlag.ANSWER, FrameFlag.ERROR, FrameFlag.CONTRIBUTION, FrameFlag.LAST, FrameFlag.REPEATED),
)
CODES = set(get_args(Code)) - {"internal"}
SUMS = SparseSpec("sums", 2, OptimizerSpec("sum"), InitialSpec("zeros"))
STATS = SparseSpec(
    "stats", 4,
    OptimizerSpec("adam", schedule=ScheduleSpec("noam", dim=4, warmup_steps=9)),
    accessor=AccessorSpec(statistics=True),
)  # fmt: skip
MOVING = SparseSpec("moving", 2, OptimizerSpec("adagrad"), shards=2)
TOP = DenseSpec("vector", 300, OptimizerSpec("momentum"), shards=4)
# Frames that no trainer of this conversation has said.
MORE: tuple[tuple[str, Header, bytes], ...] = (
    ("pull", Header(Op.PULL_CHANGED), b""),
    ("control", Header(Op.ARRIVE), b'{"name": "x", "turn": 1, "is_fresh": true, "seconds": 0}'),
    ("control", Header(Op.FENCE), b'{"nonce": "x", "states": null}'),
    ("control", Header(Op.FOLLOW), b'{"server": 1, "term": 1, "end": 2, "history": []}'),
    ("control", Header(Op.CONTROL), b'{"do": "progress"}'),
    ("control", Header(Op.CONTROL), b'{"do": "fate"}'),
    ("control", Header(Op.CONTROL), b'{"do": "lease", "group": "g", "ask": "look", "server": 1,'
     b' "term": 1, "version": 1, "sent": 1.0, "peer": 2, "endpoint": "a:1", "is_first": false}'),
)  # fmt: skip
WRITES_A_TABLE = (Op.PUSH, Op.PUSH_DENSE, Op.SET, Op.SET_DENSE, Op.SHRINK, Op.MOVE, Op.ADOPT)
MAY_WAIT = (Op.ARRIVE, Op.JOIN, Op.FOLLOW)
FROM_TRAINERS = (*FROM_CLIENTS, Op.JOIN, Op.LEAVE, Op.ARRIVE)


class Beside(threading.Thread):
    """The honest trainer: each `go()` lets it do one more step of its own tables."""

    def __init__(self, servers: Fleet, strategy: str, steps: int) -> None:
        super().__init__(daemon=True)
        self.begin = threading.Event()
        self.digest: dict[str, str] = {}
        self._client = lambda: servers.client(
            trainer=HONEST, trainers=2, strategy=strategy, timeout=20.0
        )
        self._steps = steps
        self._turns = threading.Semaphore(RECORDED_STEPS)

    def go(self, steps: int = 1) -> None:
        """It may do so many more."""
        self._turns.release(steps)

    def run(self) -> None:
        """Train, and keep the digests."""
        with self._client() as ps:
            self.begin.wait()
            found = train(ps, 3, self._steps, before=lambda s: self._turns.acquire(), suffix=".h")
        self.digest = {name: one for name, one in found.items() if name.endswith(".h")}


def converse(
    endpoints: list[str], strategy: str, folder: Path, begin: threading.Event
) -> tuple[Client, list[int]]:
    """All that a trainer and an admin do, and the numbers of SUMS.

    begin: set when the other trainer may make its tables.
    """
    ps = Client(endpoints, trainer=HOSTILE, trainers=2, strategy=strategy, timeout=20.0)
    for spec in (SUMS, STATS, MOVING, TOP):
        ps.create(spec)
    keys = np.arange(8)
    ps.set("sums", keys, np.full((8, 2), 3.0))
    ps.set_dense("vector", np.ones(300))
    ps.save(folder / "saved")
    ps.load(folder / "saved")
    begin.set()
    for step in range(RECORDED_STEPS):
        ps.commit_offset({"file": "a", "offset": step})
        ps.pull("stats", keys)
        ps.pull_dense("vector")
        ps.push("sums", keys + step, np.ones((8, 2)))
        ps.push("moving", keys, np.ones((8, 2)))
        ps.push("stats", keys, np.ones((8, 4)), shows=np.ones(8), clicks=np.zeros(8))
        ps.push_dense("vector", np.ones(300))
        ps.step()
    ps.shrink("stats")
    ps.status(), ps.digest(), ps.resume_offset()
    with Admin(AdminSettings(tuple(endpoints))) as admin:
        admin.move("moving", 0, 1)
    numbers = ps.group.tables["sums"].numbers
    ps.close()
    return ps, numbers


class Hostile:
    """The other trainer. Of the table of sums it knows what must be in it, by server."""

    def __init__(self, servers: Fleet, ps: Client, numbers: list[int], rng: Random) -> None:
        self.servers, self.rng, self.numbers = servers, rng, numbers
        self.incarnations = [ps.peers[0].identity.incarnation] * 2
        self.used = [set(range(1, peer._sequence + 1)) for peer in ps.peers]
        self.fresh = [1, 1]
        self.foreign = [
            {one.number for one in server.store.tables if one.spec.name.endswith(".h")}
            for server in servers.servers
        ]
        self.sums: list[dict[int, Any]] = [{}, {}]
        self.lines: dict[tuple[int, str], FrameStream] = {}
        self.outcomes: Counter[str] = Counter()
        for server in (0, 1):
            self.look(server, np.arange(8 + RECORDED_STEPS))

    # -------------------------------------------------------------------------------- connections

    def line(self, server: int, purpose: str) -> FrameStream:
        """A connection on which this trainer has said who it is."""
        stream = self.lines.get((server, purpose))
        if stream is None:
            stream = self.lines[server, purpose] = self.connected(server)
            hello = Hello("1", "default", HOSTILE, self.incarnations[server], purpose, "00" * 16)
            stream.send(Header(Op.HELLO, trainer=HOSTILE), to_body(hello))
            header, body = stream.receive()
            assert not header.flags & ERROR, body
        return stream

    def connected(self, server: int) -> FrameStream:
        """A connection on which nothing has been said."""
        where = "127.0.0.1", self.servers.ports[server]
        return FrameStream(socket.create_connection(where, 20.0), 20.0)

    def drop(self, server: int, purpose: str) -> None:
        """End a connection."""
        stream = self.lines.pop((server, purpose), None)
        if stream is not None:
            stream.close()

    # ------------------------------------------------------------------------------------- frames

    def retold(self, said: Said) -> Said:
        """A frame of the recording as this life of the trainer says it now."""
        server = said.server
        used, sequence = self.used[server], 0
        if said.header.sequence:
            while self.fresh[server] in used:
                self.fresh[server] += 1
            sequence = self.fresh[server]
        return replace(
            said,
            header=said.header._replace(
                trainer=HOSTILE, incarnation=self.incarnations[server], sequence=sequence
            ),
        )

    def send(self, said: Said, made: Mutant) -> None:
        """Send it; each frame that is whole is answered, or the connection ends."""
        is_greeting = said.header.op == Op.HELLO
        if is_greeting:
            stream = self.connected(said.server)
        else:
            stream = self.line(said.server, said.purpose)
        may_wait = any(header.op in MAY_WAIT for header, _ in made.frames)
        ends = made.ends or is_greeting or may_wait
        try:
            stream._sock.sendall(made.data)
            if ends and not may_wait:
                stream._sock.shutdown(socket.SHUT_WR)
            for header, body in made.frames:
                if may_wait and not stream.wait_readable(WAIT_SECONDS):
                    self.outcomes["waits"] += 1
                    break
                self.account(said.server, header, body, *self.answer(stream))
            if ends and not may_wait:
                while True:
                    header, body = self.answer(stream)
                    assert is_greeting or header.flags & ERROR, (made, header, bytes(body))
                    self.refused(body)
        except (ConnectionClosed, OSError):
            self.outcomes["ended"] += 1
            ends = True
        if is_greeting:
            stream.close()
        elif ends:
            self.drop(said.server, said.purpose)

    def answer(self, stream: FrameStream) -> tuple[Header, bytearray]:
        """The last frame of the next answer."""
        while True:
            header, body = stream.receive()
            assert header.flags & ANSWER
            if header.flags & LAST:
                return header, body

    def refused(self, body: bytes | bytearray) -> str:
        """The code of a refusal, which must be one that users know."""
        refusal = RequestError.from_body(body)
        assert refusal.code in CODES and refusal.message, refusal
        self.outcomes[refusal.code] += 1
        return refusal.code

    def account(self, server: int, asked: Header, body: bytes, told: Header, says: Any) -> None:
        """What an answered frame has done, by the protocol's rules."""
        if told.flags & ERROR:
            self.refused(says)
            return
        self.outcomes["done"] += 1
        assert asked.trainer == HOSTILE or asked.op not in FROM_TRAINERS, (asked, body)
        if asked.op == Op.JOIN:
            self.renew(0, json.loads(bytes(says))["incarnation"])
        if asked.op == Op.FENCE:
            self.renew(server, asked.incarnation)
        if asked.op < FIRST_RECORD or asked.op not in FROM_CLIENTS:
            return
        is_repeat = bool(told.flags & REPEATED)
        if asked.sequence:
            assert is_repeat == (asked.sequence in self.used[server]), (asked, body)
            self.used[server].add(asked.sequence)
        if is_repeat:
            return
        if asked.op == Op.LOAD:
            self.look(server, np.array(list(self.sums[server]), np.int64))
        elif asked.table == self.numbers[server] and asked.op in (Op.PUSH, Op.SET):
            self.summed(server, asked, body)

    def renew(self, server: int, incarnation: int) -> None:
        """It is another life to a server."""
        if incarnation == self.incarnations[server]:
            return
        self.incarnations[server] = incarnation
        self.used[server], self.fresh[server] = set(), 1
        for purpose in ("push", "pull", "control"):
            self.drop(server, purpose)

    # -------------------------------------------------------------------------------------- sums

    def summed(self, server: int, header: Header, body: bytes) -> None:
        """A push to the table of sums that was done."""
        count, rest = header.count, self.sums[server]
        assert len(body) == 16 * count, (header, body)
        keys = np.frombuffer(body, np.int64, count)
        rows = np.frombuffer(body, np.float32, offset=8 * count).reshape(count, 2)
        assert np.isfinite(rows).all()
        if header.flags & CONTRIBUTION and header.op == Op.PUSH:
            return  # Of a step that no trainer completes.
        for key, row in zip(keys.tolist(), rows, strict=True):
            with np.errstate(over="ignore"):
                is_set = header.op == Op.SET or key not in rest
                rest[key] = row.copy() if is_set else rest[key] + row

    def pulled(self, server: int, keys: Any) -> Any:
        """The rows of a server."""
        stream = self.line(server, "pull")
        header = Header(Op.PULL, table=self.numbers[server], count=len(keys))
        stream.send(header, keys.tobytes())
        told, body = stream.receive()
        assert not told.flags & ERROR, bytes(body)
        return np.frombuffer(body, np.float32).reshape(len(keys), 2)

    def look(self, server: int, keys: Any) -> None:
        """Begin with what the server has."""
        rows = self.pulled(server, keys)
        self.sums[server] = {
            key: row.copy() for key, row in zip(keys.tolist(), rows, strict=True) if row.any()
        }

    def check(self) -> None:
        """All that was acknowledged is there once, and nothing else."""
        for server, rest in enumerate(self.sums):
            keys = np.array(list(rest), np.int64)
            if len(keys):
                found, wanted = self.pulled(server, keys), np.stack(list(rest.values()))
                wrong = np.flatnonzero((found != wanted).any(axis=1))
                assert not len(wrong), (server, keys[wrong], found[wrong], wanted[wrong])

    def close(self) -> None:
        """End all connections."""
        for server, purpose in list(self.lines):
            self.drop(server, purpose)


def is_allowed(strategy: str, hostile: Hostile, said: Said, made: Mutant) -> bool:
    """Not what any trainer of a job may order, and what would change the other one's result."""
    for header, body in made.frames:
        op, data = header.op, Said(said.server, said.purpose, header, body).data
        facts = data if isinstance(data, dict) else {}
        size, step = facts.get("size"), facts.get("step")
        if (
            (op in WRITES_A_TABLE and header.table in hostile.foreign[said.server])
            or (op in (Op.MOVE, Op.ADOPT) and header.table == hostile.numbers[said.server])
            or (facts.get("do") == "move" and facts.get("table") != "moving")
            or (said.purpose == "admin" and header.trainer != HOSTILE)
            or (op == Op.CREATE and isinstance(size, int) and 10_000 < size < 1 << 26)
            or (op == Op.JOIN and strategy == "sync")
            or (op == Op.COMMIT and (not isinstance(step, int) or step > RECORDED_STEPS))
        ):
            return False
    return True


@contextlib.contextmanager
def recorded(servers: Fleet) -> Iterator[list[Proxy]]:
    """Proxies before all servers, which listen."""
    with contextlib.ExitStack() as held:
        ends = servers.endpoints.split(",")
        yield [held.enter_context(proxied(end)) for end in ends]


def resident_bytes() -> int:
    """Memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def play(strategy: str, count: int, steps: int, folder: Path) -> dict[str, str]:
    """The honest trainer's digests after so many steps, and `count` mutants of the other one."""
    rng, told = Random(SEED), []
    words = ("--num_gradient_servers=2", "--memory-limit=256M")
    with fleet(2, *words, data=folder / "data") as servers:
        for server in servers.servers:
            server.say = told.append
        beside = Beside(servers, strategy, steps)
        beside.start()
        with recorded(servers) as proxies:
            ends = [proxy.endpoint for proxy in proxies]
            ps, numbers = converse(ends, strategy, folder, beside.begin)
            conversation: dict[str, list[Said]] = {}
            for server, proxy in enumerate(proxies):
                more = [Said(server, *one) for one in MORE]
                for said in (*read_conversation(server, proxy.said), *more):
                    name = f"{said.server} {Op(said.header.op).name}"
                    conversation.setdefault(name, []).append(said)
        eventually(lambda: all(len(s.store.tables) == 7 for s in servers.servers), "tables")
        hostile = Hostile(servers, ps, numbers, rng)
        before = resident_bytes()
        names = [name for name in conversation for _ in range(1 if name in RARE else RARELY)]
        for number in range(count):
            said = hostile.retold(rng.choice(conversation[rng.choice(names)]))
            if said.header.op in (Op.PUSH, Op.SET) and rng.random() < 0.3:
                hostile.send(said, whole("none", (said.header, said.body)))
                said = hostile.retold(said)
            made = mutant(rng, said)
            while not is_allowed(strategy, hostile, said, made):
                made = mutant(rng, said)
            try:
                hostile.send(said, made)
            except BaseException as error:
                text = f"seed {SEED}, mutant {number}: {said} became {made}"
                raise AssertionError(f"{text:.3000}: {error!r}") from error
            bugs = [line for line in told if "bug" in line]
            bugs += [server.engine.broken for server in servers.servers if server.engine.broken]
            assert not bugs, f"{bugs}: seed {SEED}, mutant {number}: {made}"[:3000]
            told.clear()
            if number % PACE == PACE - 1:
                beside.go()
                hostile.check()
        hostile.check()
        hostile.close()
        assert resident_bytes() - before < MEMORY_MAX_BYTES
        beside.go(steps)
        beside.join(60)
        assert not beside.is_alive() and beside.digest
        if count:
            few = ("ended", "done", "value", "usage", "unknown-table")
            assert all(hostile.outcomes[name] > count // 1000 for name in few), hostile.outcomes
        held = [one for server in servers.servers for one in server.store.tables]
        eventually(
            lambda: all(one.ownership.is_idle and not one.ownership.leaving for one in held),
            "moves",
        )
        digests = [server.store.digests() for server in servers.servers]
        for index in (0, 1):
            servers.stop_one(index)
            servers.restart(index)
        assert [server.store.digests() for server in servers.servers] == digests
        return beside.digest


@pytest.mark.limit(30 + MUTATIONS / 200)
@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_mutants_are_refused_and_change_nothing(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is answered or ends its connection; the other trainer's tables do not show them."""
    monkeypatch.chdir(tmp_path)
    count = MUTATIONS // 2
    steps = RECORDED_STEPS + count // PACE
    calm = play(strategy, 0, steps, tmp_path / "calm")
    assert play(strategy, count, steps, tmp_path / "wild") == calm
