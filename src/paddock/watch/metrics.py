"""Metrics of a run and of a parameter server for Prometheus, and the port that answers it.

A run's metrics are the latest rows of its history on this node: ranks come with labels, and what
the operator counts as well has the operator's name.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text format 0.0.4).
"""

from __future__ import annotations

import os

from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    Row = Mapping[str, Any]
    Labels = Mapping[str, object]
    Sample = tuple[str, Labels, float]  # name, labels, value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_SECONDS_MAX = 5.0
REQUEST_BYTES_MAX = 16 << 10
CONNECTIONS_MAX = 32
PHASES = ("starting", "running", "stalled", "stopping", "restarting", "ended")
METRICS = {  # name -> type, text
    "paddock_run_info": ("gauge", "The run that this launcher is a part of."),
    "paddock_run_phase": ("gauge", "1 for the phase that the run is in."),
    "paddock_run_attempt": ("gauge", "The attempt, from 0."),
    "paddock_run_stalls_total": ("counter", "How often no rank moved."),
    "paddock_job_restarts_total": ("counter", "Attempts of jobs after the first one."),
    "paddock_rank_up": ("gauge", "1 while the process runs."),
    "paddock_rank_step": ("gauge", "The latest step of a rank."),
    "paddock_rank_epoch": ("gauge", "The latest epoch of a rank."),
    "paddock_rank_rate": ("gauge", "How fast a rank is by its own words, such as examples/s."),
    "paddock_rank_value": ("gauge", "A value that a rank tells, such as loss."),
    "paddock_rank_progress_timestamp_seconds": ("gauge", "When a rank last told progress."),
    "paddock_rank_cpu_seconds_total": ("counter", "CPU time of a rank and its children."),
    "paddock_rank_memory_bytes": ("gauge", "Memory of a rank and its children."),
    "paddock_ps_is_primary": ("gauge", "1 for a server that serves, 0 for a replica."),
    "paddock_ps_table_rows": ("gauge", "Rows of a table on a server; 0 of a dense one."),
    "paddock_ps_table_bytes": ("gauge", "Memory of a table on a server."),
    "paddock_ps_bytes": ("gauge", "Memory of all tables of a server."),
    "paddock_ps_memory_limit_bytes": ("gauge", "Memory that a server's tables may take."),
    "paddock_ps_connections": ("gauge", "Connections of a server."),
    "paddock_ps_records_total": ("counter", "Records of a server's log."),
    "paddock_ps_pushes_total": ("counter", "Pushes that a server has carried out."),
    "paddock_ps_pulls_total": ("counter", "Pulls that a server has answered."),
    "paddock_ps_lag_steps": ("gauge", "Steps between a server's first and last trainer."),
    "paddock_ps_replica_lag_records": ("gauge", "Records that a server's replica lacks."),
    "process_resident_memory_bytes": ("gauge", "Memory in bytes."),
}
_PHASE_AFTER = {"stopping": "stopping", "attempt_end": "restarting", "end": "ended"}
_OF_SERVER = {
    "is_primary": "is_primary", "bytes": "bytes", "memory_limit": "memory_limit_bytes",
    "connections": "connections", "lsn": "records_total", "pushes": "pushes_total",
    "pulls": "pulls_total", "lag": "lag_steps", "behind": "replica_lag_records",
}  # fmt: skip
_OF_PROGRESS = {"step": "step", "epoch": "epoch", "at": "progress_timestamp_seconds"}
_OF_SAMPLE = {"cpu": "cpu_seconds_total", "rss": "memory_bytes"}


def series_line(name: str, labels: Labels, value: float) -> str:
    r"""A series.

    >>> print(series_line("a", {"b": 'x"y'}, 2.0), series_line("a", {}, float("inf")))
    a{b="x\"y"} 2 a +Inf
    """
    pairs = ",".join(f'{n}="{_escaped(str(v))}"' for n, v in labels.items())
    text = f"{value:.16g}".replace("nan", "NaN").replace("inf", "Inf")
    text = f"+{text}" if text == "Inf" else text
    return f"{name}{{{pairs}}} {text}" if pairs else f"{name} {text}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def metrics_text(samples: Iterable[Sample]) -> str:
    """The text of samples and of this process's memory, in the order of METRICS."""
    found: dict[str, list[str]] = {}
    for name, labels, value in (*samples, ("process_resident_memory_bytes", {}, rss_bytes())):
        found.setdefault(name, []).append(series_line(name, labels, value))
    lines = []
    for name, (kind, text) in METRICS.items():
        if name in found:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *found[name]]
    return "\n".join(lines) + "\n"


def rss_bytes() -> float:
    """Memory of this process; 0.0 where the kernel does not tell (proc_pid_statm(5))."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return float(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0.0


def server_samples(row: Row, labels: Labels) -> Iterator[Sample]:
    """The samples of a row of a parameter server."""
    for field, name in _OF_SERVER.items():
        if field in row:
            yield f"paddock_ps_{name}", labels, row[field]
    for table, rows, size in row["tables"]:
        yield "paddock_ps_table_rows", {**labels, "table": table}, rows
        yield "paddock_ps_table_bytes", {**labels, "table": table}, size


class RunMetrics:
    """The latest rows of a run on this node. The watcher's thread adds, others read the text."""

    def __init__(self) -> None:
        from threading import Lock

        self._lock = Lock()
        self._run: dict[str, object] = {}
        self._info: dict[str, object] = {}
        self._phase = PHASES[0]
        self._attempt = self._restarts = self._stalls = 0
        self._ranks: dict[tuple[str, int], dict[str, Row]] = {}  # the latest row of each kind

    def add(self, row: Row) -> None:
        """Take a row of the history."""
        with self._lock:
            self._add(row)

    def _add(self, row: Row) -> None:
        kind = row["kind"]
        if kind == "begin":
            self._run = {"run": row.get("run", "")}
            self._info = {"node": row.get("host", ""), "version": row.get("paddock", "")}
        elif kind == "attempt":
            self._restarts += bool(self._ranks)
            self._attempt, self._phase = row["attempt"], "running"
            self._ranks = {(role, rank): {} for role, rank, *_ in row["ranks"]}
        elif kind in ("stall", "stall_over"):
            self._stalls += kind == "stall"
            self._phase = "stalled" if kind == "stall" else "running"
        elif kind in _PHASE_AFTER:
            self._phase = _PHASE_AFTER[kind]
        else:
            of = self._ranks.get((row.get("role", "worker"), row.get("rank", -1)), {})
            of[kind] = row

    def text(self) -> str:
        """The text that /metrics answers."""
        with self._lock:
            return metrics_text(self._samples())

    def _samples(self) -> Iterator[Sample]:
        run = self._run
        yield "paddock_run_info", {**run, **self._info}, 1
        for phase in PHASES:
            yield "paddock_run_phase", {**run, "phase": phase}, phase == self._phase
        yield "paddock_run_attempt", run, self._attempt
        yield "paddock_run_stalls_total", run, self._stalls
        yield "paddock_job_restarts_total", run, self._restarts
        for (role, number), rows in self._ranks.items():
            labels = {**run, "role": role, "rank": number}
            yield "paddock_rank_up", labels, "exit" not in rows
            progress = rows.get("progress", {})
            for field, name in _OF_PROGRESS.items():
                if field in progress:
                    yield f"paddock_rank_{name}", labels, progress[field]
            if "rate" in progress:
                yield "paddock_rank_rate", {**labels, "unit": progress["unit"]}, progress["rate"]
            for value, found in (progress.get("values") or {}).items():
                yield "paddock_rank_value", {**labels, "name": value}, found
            for field, name in _OF_SAMPLE.items():
                if field in rows.get("sample", {}):
                    yield f"paddock_rank_{name}", labels, rows["sample"][field]
            if "ps" in rows:
                yield from server_samples(rows["ps"], {**run, "server": number})


def open_port(port: int, flag: str = "--metrics-port") -> tuple[int, int]:
    """Listen on every address of this machine: a descriptor, and the port. Raises UsageError.

    port: 0 for any free one. Needs no more than ranks that are about to start can spare.
    """
    import _socket as sock  # `import socket` takes 4 ms

    try:
        try:
            found = sock.socket(sock.AF_INET6, sock.SOCK_STREAM)
            found.setsockopt(sock.IPPROTO_IPV6, sock.IPV6_V6ONLY, 0)
            host = "::"
        except OSError:  # a kernel without IPv6
            found, host = sock.socket(sock.AF_INET, sock.SOCK_STREAM), "0.0.0.0"
        found.setsockopt(sock.SOL_SOCKET, sock.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(CONNECTIONS_MAX)
    except OSError as error:
        raise UsageError(
            f"{flag} {port}: {error.strerror or error}", hint="0 takes any port that is free"
        ) from error
    port = found.getsockname()[1]
    return found.detach(), port


class MetricsServer:
    """Answers GET /metrics, in threads of its own. fd: a socket that listens. text: asked for
    each answer."""

    def __init__(self, fd: int, text: Callable[[], str]) -> None:
        import socket
        from threading import BoundedSemaphore, Thread

        self._listener = socket.socket(fileno=fd)
        self._text = text
        self._is_closed = False
        self._free = BoundedSemaphore(CONNECTIONS_MAX)
        Thread(target=self._serve, name="paddock-metrics", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        from socket import SHUT_RDWR

        self._is_closed = True
        try:
            self._listener.shutdown(SHUT_RDWR)  # it wakes the thread
        except OSError:
            pass  # not of a socket that listens, on some kernels
        self._listener.close()

    def _serve(self) -> None:
        from threading import Thread
        from time import sleep

        while not self._is_closed:
            try:
                peer, _ = self._listener.accept()
            except OSError:  # closed, or out of descriptors for a moment
                sleep(0.05)
                continue
            if not self._free.acquire(blocking=False):
                peer.close()
                continue
            try:
                Thread(target=self._answer, args=(peer,), daemon=True).start()
            except RuntimeError:  # no thread can be started
                self._free.release()
                peer.close()

    def _answer(self, peer: socket.socket) -> None:
        from time import monotonic

        try:
            with peer:
                request, until = b"", monotonic() + REQUEST_SECONDS_MAX
                while b"\r\n\r\n" not in request and len(request) < REQUEST_BYTES_MAX:
                    peer.settimeout(max(0.01, until - monotonic()))
                    if not (more := peer.recv(4096)):
                        return
                    request += more
                method, path, *_ = [*request.split(b" ", 2), b"", b""]
                status, body = "404 Not Found", b"only /metrics is here\n"
                if method not in (b"GET", b"HEAD"):
                    status, body = "405 Method Not Allowed", b"GET only\n"
                elif path.partition(b"?")[0] == b"/metrics":
                    status, body = "200 OK", self._text().encode("utf-8", "replace")
                head = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\n"
                head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                peer.sendall(head.encode() + (b"" if method == b"HEAD" else body))
        except OSError:
            pass  # whoever asked has gone, or is too slow
        finally:
            self._free.release()
