"""How long many agents take to meet.

Up to 1,024 agents do not fit one machine, so light ones are used: the real Client on the real
Loop, many to a process, against the real Server and Coordinator in their own process. A light
agent's last step, reading the host list of its Start, is done once per process instead of once
per agent (1,024 machines would do it at the same time, one each), and that once is in the figure.
The full agents below are whole `paddock launch` processes, as many as fit.
"""

from __future__ import annotations

import os
import socket
import time
from functools import partial

from benchmarks.figure import Figure, interleave, rounds
from benchmarks.world import Running, World, free_port, load_average, node_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.core.job import Job
    from paddock.core.rendezvous.messages import Envelope

WANTED = {32: 0.15, 256: 1.0, 1024: 3.0}
KEY = b"the key of a benchmark"
UID = "0123456789abcdef"
CLIENT_PROCESSES = 4
LIMIT_SECONDS = 30.0


def measure(world: World) -> list[Figure]:
    """Light agents with and without a job key, then full ones beside torchrun's."""
    import sys

    sys.path.insert(0, str(world.site))
    figures = []
    for count, wanted in WANTED.items():
        for key in (KEY, b""):
            word = "with a key" if key else "no key"
            figure = Figure(f"rendezvous of {count} agents, {word}", "s", wanted=wanted)
            for _ in range(1 if world.quick or count > 256 else 3):
                figure.add("paddock", _light(count, key))
            figure.loads.append(round(load_average(), 2))
            figures.append(figure)
    for count in (2,) if world.quick else (2, 8, 32):
        figure = Figure(f"{count} agents started at once, to the last rank's line", "s")

        def once(launcher: str, count: int = count, figure: Figure = figure) -> None:
            figure.add(launcher, _full(world, launcher, count))

        torchrun = {"torchrun": 1} if count <= 8 else {}
        interleave((figure,), rounds(world, paddock=3, **torchrun), once, load_average)
        figures.append(figure)
    return figures


def _full(world: World, launcher: str, count: int) -> float | None:
    port = free_port()
    jobs: list[Running] = []
    try:
        for node in range(count):
            options = node_options(launcher, node, count, port, "127.0.0.1")
            stamps = jobs[0].folder / "stamps" if jobs else None
            jobs.append(world.run(launcher, 1, "hello.py", options=options, stamps=stamps))
        up = jobs[0].await_stamps("up", count, LIMIT_SECONDS)
        for job in jobs:
            job.wait(10.0)
        return (up[-1].at_ns - jobs[0].started_ns) / 1e9 if len(up) == count else None
    finally:
        for job in jobs:
            job.end()


# ------------------------------------------------------------------ light agents


def _light(count: int, key: bytes) -> float:
    """Seconds from the first connect to the last Start received."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    job = _job(count, listener.getsockname()[1])
    go_read, go_write = os.pipe()
    answer_read, answer_write = os.pipe()
    coordinator = _fork(lambda: _coordinate(job, listener, key))
    clients = []
    processes = min(CLIENT_PROCESSES, count)
    for index in range(processes):
        share = range(1 + index, count, processes)
        clients.append(_fork(partial(_be_members, job, share, key, go_read, answer_write)))
    listener.close()
    time.sleep(0.2)  # all are forked and wait at the gate
    os.write(go_write, b"!" * processes)
    try:
        times = [_read_answer(answer_read) for _ in clients]
    finally:
        for pid in [*clients, coordinator]:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
        for fd in (go_read, go_write, answer_read, answer_write):
            os.close(fd)
    return (max(last for _, last in times) - min(first for first, _ in times)) / 1e9


def _job(count: int, port: int) -> Job:
    from paddock.core.job import Entrypoint, Job, Rendezvous

    return Job(
        command=Entrypoint("program", "true"),
        nnodes_min=count,
        nnodes_max=count,
        rendezvous=Rendezvous(
            kind="tcp",
            host="127.0.0.1",
            port=port,
            join_timeout_seconds=LIMIT_SECONDS,
            lease_seconds=LIMIT_SECONDS,
        ),
    )


def _coordinate(job: Job, listener: socket.socket, key: bytes) -> None:
    """Node 0: the coordinator, and its own member."""
    from paddock.agent.coordinator import Coordinator, CoordinatorEvents
    from paddock.agent.transport.server import CoordinatorServer
    from paddock.agent.transport.sockets import Listener
    from paddock.local.loop import Loop

    class OwnLink:
        """Takes the orders to node 0."""

        def send(self, envelope: object) -> None:
            """Nobody acts on it here."""

        def close(self) -> None:
            """Nothing to close."""

    loop = Loop()
    coordinator = Coordinator(job, loop, UID, events=CoordinatorEvents())
    CoordinatorServer(job, loop, coordinator, Listener(listener, loop, None), key=key)
    own = coordinator.attach(OwnLink())
    coordinator.receive(own, _join(job, 0), is_self=True)
    loop.run()


def _join(job: Job, index: int) -> Envelope:
    """A node of eight devices."""
    from paddock.core.hosts import Host
    from paddock.core.rendezvous.messages import Envelope, Join
    from paddock.jobfile.flags import config_fingerprint

    host = Host(
        name=f"node{index}",
        address="127.0.0.1",
        device_kind="gpu",
        device_labels=tuple("01234567"),
        device_indices=tuple(range(8)),
        slots=(("worker", 0, 8),),
        ports=tuple(range(20_000, 20_008)),
        service_ports=(20_008, 20_009, 20_010, 20_011),
    )
    join = Join(host, f"node{index}/bench", index, config_fingerprint(job))
    return Envelope(UID, -1, join)


def _be_members(job: Job, share: range, key: bytes, go: int, answer: int) -> None:
    """Members of this process's share of the nodes; writes when it began and ended, in ns."""
    from paddock.agent.transport.client import ClientEvents, CoordinatorClient
    from paddock.agent.transport.sockets import Network
    from paddock.core.rendezvous.messages import Start
    from paddock.local.loop import Loop

    loop = Loop()
    net = Network(loop, None, None)
    left = len(share)
    has_decoded = False

    def received() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            loop.stop()

    class LightClient(CoordinatorClient):
        """A member that does not read the host list if another of its process did."""

        def _on_line(self, line: bytes) -> None:
            nonlocal has_decoded
            at = line.find(b'"t":"Start"', 0, 128)
            if has_decoded and at >= 0 and self._state == "joined":
                self._in.check(line)
                received()
                return
            has_decoded = has_decoded or at >= 0
            super()._on_line(line)

    class Light(ClientEvents):
        """Joins as soon as it is let in."""

        client: LightClient

        def __init__(self, index: int) -> None:
            self.index = index

        def joined(self, _seen_as: str, _uid: str) -> None:
            self.client.send(_join(job, self.index))

        def on_envelope(self, envelope: Envelope) -> None:
            if isinstance(envelope.message, Start):
                received()

        def lost(self, _ending: object, why: str, _seconds_left: float) -> None:
            raise SystemExit(f"rendezvous: {why}")

        def failed(self, error: Exception) -> None:
            raise SystemExit(f"rendezvous: {error}")

    def join(index: int) -> LightClient:
        events = Light(index)
        events.client = LightClient(
            loop,
            net,
            job.job_id,
            (job.rendezvous.host, job.rendezvous.port),
            key=key,
            join_timeout_seconds=LIMIT_SECONDS,
            events=events,
        )
        return events.client

    os.read(go, 1)
    began = time.monotonic_ns()
    members = [join(index) for index in share]
    loop.run()
    ended = time.monotonic_ns()
    assert members
    os.write(answer, b"%20d%20d" % (began, ended))
    time.sleep(LIMIT_SECONDS)  # connections stay open until all have begun


def _read_answer(fd: int) -> tuple[int, int]:
    import select

    if not select.select([fd], [], [], LIMIT_SECONDS)[0]:
        raise RuntimeError(f"agents did not meet within {LIMIT_SECONDS:g} s")
    text = os.read(fd, 40)
    return int(text[:20]), int(text[20:])


def _fork(work: Callable[[], None]) -> int:
    """Run work() in a child; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001  # a forked child must never return
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)
