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
REQUEST_SECONDS_MAX = 5.0  # for the next bytes of a request
PAUSE_SECONDS = 0.01  # between two requests, and between two tries without a free descriptor
CONNECTIONS_MAX = 32
PHASES = ("starting", "running", "stalled", "stopping", "restarting", "ended")
METRICS = {  # name -> text; those that end in _total are counters, the others gauges
    "paddock_run_info": "The run that this launcher is a part of.",
    "paddock_run_phase": "1 for the phase that the run is in.",
    "paddock_run_attempt": "The attempt, from 0.",
    "paddock_run_stalls_total": "How often no rank moved.",
    "paddock_job_restarts_total": "Attempts of jobs after the first one.",
    "paddock_rank_up": "1 while the process runs.",
    "paddock_rank_step": "The latest step of a rank.",
    "paddock_rank_epoch": "The latest epoch of a rank.",
    "paddock_rank_rate": "How fast a rank is by its own words, such as examples/s.",
    "paddock_rank_value": "A value that a rank tells, such as loss.",
    "paddock_rank_progress_timestamp_seconds": "When a rank last told progress.",
    "paddock_rank_cpu_seconds_total": "CPU time of a rank and its children.",
    "paddock_rank_memory_bytes": "Memory of a rank and its children.",
    "paddock_ps_is_primary": "1 for a server that serves, 0 for a replica.",
    "paddock_ps_table_rows": "Rows of a table on a server; 0 of a dense one.",
    "paddock_ps_table_bytes": "Memory of a table on a server.",
    "paddock_ps_bytes": "Memory of all tables of a server.",
    "paddock_ps_memory_limit_bytes": "Memory that a server's tables may take.",
    "paddock_ps_connections": "Connections of a server.",
    "paddock_ps_records_total": "Records of a server's log.",
    "paddock_ps_pushes_total": "Pushes that a server has carried out.",
    "paddock_ps_pulls_total": "Pulls that a server has answered.",
    "paddock_ps_lag_steps": "Steps between a server's first and last trainer.",
    "paddock_ps_replica_lag_records": "Records that a server's replica lacks.",
    "process_resident_memory_bytes": "Memory in bytes.",
}
_PHASE_AFTER = {
    "stall": "stalled", "stall_over": "running", "stopping": "stopping",
    "attempt_end": "restarting", "end": "ended",
}  # fmt: skip
_OF_SERVER = {
    "is_primary": "is_primary", "bytes": "bytes", "memory_limit": "memory_limit_bytes",
    "connections": "connections", "lsn": "records_total", "pushes": "pushes_total",
    "pulls": "pulls_total", "lag": "lag_steps", "behind": "replica_lag_records",
}  # fmt: skip
_OF_RANK = (
    ("progress", "step", "step"), ("progress", "epoch", "epoch"),
    ("progress", "at", "progress_timestamp_seconds"), ("sample", "cpu", "cpu_seconds_total"),
    ("sample", "rss", "memory_bytes"),
)  # fmt: skip


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
    for name, text in METRICS.items():
        if name in found:
            kind = "counter" if name.endswith("_total") else "gauge"
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
        kind = row["kind"]
        with self._lock:
            if kind == "begin":
                self._run = {"run": row.get("run", "")}
                self._info = {"node": row.get("host", ""), "version": row.get("paddock", "")}
            elif kind == "attempt":
                self._restarts += bool(self._ranks)
                self._attempt, self._phase = row["attempt"], "running"
                self._ranks = {(role, rank): {} for role, rank, *_ in row["ranks"]}
            elif kind in _PHASE_AFTER:
                self._stalls += kind == "stall"
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
            for kind, field, name in _OF_RANK:
                if field in rows.get(kind, ()):
                    yield f"paddock_rank_{name}", labels, rows[kind][field]
            progress = rows.get("progress", {})
            if "rate" in progress:
                yield "paddock_rank_rate", {**labels, "unit": progress["unit"]}, progress["rate"]
            for value, found in (progress.get("values") or {}).items():
                yield "paddock_rank_value", {**labels, "name": value}, found
            if "ps" in rows:
                yield from server_samples(rows["ps"], {**run, "server": number})


def open_port(port: int, flag: str = "--metrics-port") -> socket.socket:
    """Listen on every address of this machine. port: 0 for any free one. Raises UsageError."""
    import socket

    has_both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if has_both else socket.AF_INET
    try:
        return socket.create_server(
            ("", port), family=family, backlog=CONNECTIONS_MAX, dualstack_ipv6=has_both
        )
    except OSError as error:
        raise UsageError(
            f"{flag} {port}: {os.strerror(error.errno or 0)}", hint="0 takes any port that is free"
        ) from error


class MetricsServer:
    """Answers GET /metrics, in threads of its own. listener: closed with it. text: asked for
    each answer."""

    def __init__(self, listener: socket.socket, text: Callable[[], str]) -> None:
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
        from threading import BoundedSemaphore, Thread

        free = BoundedSemaphore(CONNECTIONS_MAX)

        class Answer(BaseHTTPRequestHandler):
            timeout = REQUEST_SECONDS_MAX

            def do_GET(self) -> None:
                is_there = self.path.partition("?")[0] == "/metrics"
                body = (text() if is_there else "only /metrics is here\n").encode(
                    "utf-8", "replace"
                )
                self.send_response(200 if is_there else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else body)

            do_HEAD = do_GET

            def log_message(self, *_: object) -> None:
                """Tell nobody of a request."""

        class Server(ThreadingHTTPServer):
            def process_request_thread(self, request: Any, client_address: Any) -> None:
                if not free.acquire(blocking=False):
                    return self.shutdown_request(request)
                try:
                    super().process_request_thread(request, client_address)
                finally:
                    free.release()

            def handle_error(self, *_: object) -> None:
                """Whoever asked has gone, or there is no thread for him now."""

        self._server = Server(("", 0), Answer, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = self._listener = listener
        self._is_closed = False
        Thread(target=self._serve, name="paddock-metrics", daemon=True).start()

    def _serve(self) -> None:
        from time import sleep

        while not self._is_closed:
            self._server.handle_request()
            sleep(PAUSE_SECONDS)
        self._server.server_close()

    def close(self) -> None:
        """Stop listening."""
        from socket import SHUT_RDWR

        self._is_closed = True
        self._listener.shutdown(SHUT_RDWR)  # it wakes the thread
