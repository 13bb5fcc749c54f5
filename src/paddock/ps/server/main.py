"""``paddock pserver``: one server from its options to its end.

Opens the data directory, recovers what it holds, listens, says one line, and runs until SIGTERM
or SIGINT: then the exit code is 0.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

# numpy's BLAS starts a thread per core when it is imported; a server needs none of them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from paddock.errors import PaddockError, UsageError, extra_hint  # after the variable above
from paddock.ps.connection import read_token
from paddock.ps.endpoint import join_endpoint
from paddock.ps.jit import HAVE_NUMBA
from paddock.ps.replication.pair import Pair, prepare_pair
from paddock.ps.replication.witness import Witness
from paddock.ps.server.options import ServerOptions, read_options
from paddock.ps.server.recovery import Snapshots, open_engine, record_place
from paddock.ps.server.serve import Server
from paddock.ps.server.services import NO_SERVICES, HostedService
from paddock.ps.server.store import Store
from paddock.ps.spec import to_json
from paddock.ps.storage.checkpoint import open_checkpoint
from paddock.ps.table.memory import memory_for_tables
from paddock.ps.table.warm import warm_server
from paddock.ps.wire.frames import Op
from paddock.watch.metrics import MetricsServer, metrics_text, open_port, server_samples
from paddock.watch.rank import LINE_BYTES_MAX, send_line
from paddock.watch.servers import row_line, server_row

LOOK_SECONDS = 1.0
REPORT_LOOKS = 5  # the launcher is told after so many
# In a pod, a name may be published later than its program starts: how long, how often.
NAME_SECONDS = 60.0
NAME_PAUSE_SECONDS = 0.5


def say(line: str) -> None:
    """A line of news goes to stderr."""
    sys.stderr.write(f"pserver: {line}\n")
    sys.stderr.flush()


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    services: Mapping[str, HostedService] = NO_SERVICES,
) -> int:
    """Run a server with these flags until it is told to end; the exit code.

    services: what server 0 hosts besides, by name.
    """
    options = named_options(words, env)
    for line in options.said:
        say(line)
    if not HAVE_NUMBA:
        why = "is off (PADDOCK_PS_NUMBA=0)" if env.get("PADDOCK_PS_NUMBA") == "0" else "is missing"
        say(f"numba {why}: this server runs on numpy, which is slower ({extra_hint('ps')})")
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    before = {n: signal.signal(n, end) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        serve(options, ended, services)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def named_options(words: Sequence[str], env: Mapping[str, str]) -> ServerOptions:
    """The options; in a pod, a name that they need and nobody knows yet is waited for.

    Raises UsageError.
    """
    deadline = time.monotonic() + (NAME_SECONDS if "KUBERNETES_SERVICE_HOST" in env else 0.0)
    said = ""
    while True:
        unknown: list[str] = []
        try:
            options = read_options(words, env, partial(is_own_host, unknown=unknown))
            unknown.clear()  # Those of other servers do not matter any more.
            is_own_host(options.bind, unknown)
            if not unknown or time.monotonic() >= deadline:
                return options  # Of a name that nobody knows, listening tells.
        except UsageError:
            if not unknown or time.monotonic() >= deadline:
                raise
        line = f"waits for the address of {', '.join(unknown)}"
        if line != said:
            say(line)
        said = line
        time.sleep(NAME_PAUSE_SECONDS)


def is_own_host(host: str, unknown: list[str] | None = None) -> bool:
    """True when it names an address of this machine: one that can be bound.

    unknown: gets the host, when nobody knows its address.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.bind(address)
        return True
    except OSError as error:
        if isinstance(error, socket.gaierror) and unknown is not None and host not in unknown:
            unknown.append(host)
        return False


def serve(
    options: ServerOptions,
    ended: threading.Event,
    services: Mapping[str, HostedService] = NO_SERVICES,
) -> None:
    """Be a server until `ended` is set; snapshots are written meanwhile."""
    listener = None if options.metrics_port is None else open_port(options.metrics_port)
    if listener is not None:
        say(f"metrics are on port {listener.getsockname()[1]}")
    server = make_server(options, services)
    snapshots = server.snapshots
    labels = {"run": options.job, "server": server.store.server}
    metrics = listener and MetricsServer(
        listener, lambda: metrics_text(server_samples(server_row(server.status()), labels))
    )
    server.start()
    sys.stdout.write(ready_line(server, options) + "\n")
    sys.stdout.flush()
    # What a first pull and push run is compiled, or loaded, while trainers start.
    threading.Thread(target=warm_server, args=(ended.is_set,)).start()
    looks = 0
    try:
        while not ended.wait(LOOK_SECONDS) and not server.engine.broken:
            if looks % REPORT_LOOKS == 0:
                tell_launcher(server)
            looks += 1
            if options.end_with_trainers == "yes":
                server.close_lost()
                if server.is_finished:
                    break
            if snapshots is not None and snapshots.is_due():
                try:
                    snapshots.take()
                except PaddockError as error:  # The log has everything; it goes on growing.
                    say(f"no snapshot: {error.message}")
    finally:
        tell_launcher(server)
        if metrics is not None:
            metrics.close()
        finish(server)


def tell_launcher(server: Server) -> None:
    """Send this server's counters to the launcher that has started it, if there is one."""
    with suppress(RuntimeError):  # a table came while they were counted: next time
        send_line(row_line(server_row(server.status()), LINE_BYTES_MAX))


def finish(server: Server) -> None:
    """End it, all that it acknowledged in its log. Raises PaddockError when it is broken.

    When all trainers have closed, its tables stay and the log goes, if that takes less room.
    """
    server.stop()
    engine = server.engine
    if engine.log is not None:
        if server.is_finished and not engine.replication.is_replicated and not engine.broken:
            _leave_tables(server)
        engine.log.close()
    if server.file is not None:
        server.file.close()
    if engine.broken:
        hint = "start it again: it goes on from its --data-dir; if it ends like this again, give "
        hint += "it more memory, or add servers"
        raise PaddockError(f"server {server.store.server}: {engine.broken}", hint=hint)


def _leave_tables(server: Server) -> None:
    """The job is over: the next one on this data directory begins with nobody."""
    engine, snapshots = server.engine, server.snapshots
    assert engine.log is not None and snapshots is not None
    try:
        engine.record(Op.CLOSE, {"all": True})
        if engine.store.nbytes < engine.log.nbytes:
            snapshots.take(keep=1)
    except PaddockError as error:
        say(f"the log stays: {error.message}")


def make_server(
    options: ServerOptions, services: Mapping[str, HostedService] = NO_SERVICES
) -> Server:
    """A server with its state recovered, listening but not yet accepting."""
    token = read_token(options.token_file)
    servers = max(1, len(options.endpoints))
    memory = options.memory_limit or memory_for_tables(options.servers_here)
    store = Store(options.index, servers, memory_limit_bytes=memory)
    file = prepare_pair(options, say)
    record_place(options.data_dir, options.index, servers, options.job)
    engine, server_id = open_engine(store, options.data_dir, options.ack, say)  # type: ignore[arg-type]  # read_options has looked
    snapshots = None
    if engine.log is not None:
        snapshots = Snapshots(engine, options.data_dir, server_id, options.snapshot_every, say)
    if options.load and engine.lsn == 0:
        checkpoint = open_checkpoint(Path(options.load).absolute(), job=options.job)
        for spec in checkpoint.specs:
            engine.record(Op.CREATE, to_json(spec))
        where = {"directory": str(checkpoint.path.parent), "name": checkpoint.name}
        engine.record(Op.LOAD, {**where, "checksum": checkpoint.checksum})
        if snapshots is not None:
            snapshots.ask()  # So that the next start does without the checkpoint.
    server = Server(
        options,
        engine,
        say,
        token=token,
        server_id=f"{server_id:016x}",
        snapshots=snapshots,
        witness=Witness(Path(options.data_dir)) if options.data_dir else None,
        file=file,
        services=services,
    )
    if file is not None and options.witness:
        engine.replication = Pair(server, file)
    elif file is not None:
        file.open(
            is_empty=engine.lsn == 0, is_on_disk=options.ack in ("disk", "memory"), is_alone=True
        )
    return server


def ready_line(server: Server, options: ServerOptions) -> str:
    """The one line that says the server is ready."""
    count, where = options.num_gradient_servers, join_endpoint(options.bind, server.port)
    trainers = f"{count} trainer{'s' * (count != 1)}"
    who = f"pserver {options.index} of {server.store.servers} is ready on {where}"
    return f"{who} (job {options.job}, {trainers}, ack {options.ack})"
