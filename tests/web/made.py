"""Runs made by hand, as launches leave them, and requests to the pages of `paddock web`."""

from __future__ import annotations

import asyncio
import json
import os
import struct
from typing import TYPE_CHECKING, Any

from paddock.backends.registry import RegisteredJob, Registry
from paddock.backends.status import ask_all
from paddock.backends.table import LAUNCH
from paddock.backends.types import Handle
from paddock.web.app import make_app
from paddock.web.runs import RunSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from paddock.web.guard import Guard

TOKEN = "a-token-of-the-tests"
PORT = 8000
BEGAN = 1_700_000_000.0
COOKIE = f"paddock-{PORT}={TOKEN}"


def source_of(state: Path) -> RunSource:
    """All runs of a state directory."""
    return RunSource({"XDG_STATE_HOME": str(state)}, lambda runs: ask_all(runs, is_brief=True))


def app_of(state: Path, *, can_stop: bool = False) -> Guard:
    """The application that shows the runs of a state directory."""
    return make_app(source_of(state), TOKEN, PORT, can_stop=can_stop)


def history_rows(ranks: int = 2, steps: int = 20, **first: object) -> list[dict[str, Any]]:
    """The rows of a run: each rank does a step a second, and its loss falls."""
    listed = [["worker", r, 100 + r, f"workerlog.{r}"] for r in range(ranks)]
    rows: list[dict[str, Any]] = [
        {"kind": "begin", "at": BEGAN, "version": 1, "host": "node-a", **first},
        {"kind": "attempt", "at": BEGAN + 1, "attempt": 0, "ranks": listed},
    ]
    for step in range(steps):
        at = BEGAN + 2 + step
        for rank in range(ranks):
            values = {"loss": 3.0 / (step + 1)}
            rows.append({"kind": "progress", "at": at, "rank": rank, "profile": "plain",
                         "step": step, "steps": steps, "values": values})  # fmt: skip
            if step % 10 == 0:
                rows.append({"kind": "sample", "at": at, "rank": rank, "cpu": step * 0.5,
                             "rss": 50 << 20, "read": 0, "written": 0})  # fmt: skip
    return rows


def stall_row(suspect: int, others: Sequence[int], at: float = 30) -> dict[str, Any]:
    """A stall that one rank is suspected of, so many seconds after the beginning."""
    groups = [[list(others), "all_reduce at train.py:88"], [[suspect], "read <b> at data.py:12"]]
    return {"kind": "stall", "at": BEGAN + at, "seconds": 8.0, "suspects": [suspect],
            "groups": groups}  # fmt: skip


def make_run(
    state: Path,
    name: str,
    rows: Sequence[Mapping[str, Any]] = (),
    logs: Mapping[int, Sequence[tuple[float, bytes]]] | None = None,
    *,
    end: str = "failed",
    why: str = "rank 1 (pid 101) on node-a exited with code 7",
    torn: bytes = b"",
) -> RegisteredJob:
    """The record of a run that has ended, its history and its logs.

    logs: of each rank, (seconds since BEGAN, whole lines). torn: follows the history's last row.
    """
    registry = Registry({"XDG_STATE_HOME": str(state)})
    run = registry.add(name, Handle(LAUNCH, "node-a", name), "train.py --lr 0.1", 1)
    run.created_at = BEGAN
    directory = state / "log" / "runs" / name
    directory.mkdir(parents=True)
    run.keep(directory=str(directory), logs=str(directory), host=os.uname().nodename,
             process="gone 0 1 0")  # fmt: skip
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (directory / "history.jsonl").write_bytes(text.encode() + torn)
    for rank, chunks in (logs or {}).items():
        write_log(directory, rank, chunks)
    failed_at = BEGAN + 60
    event = {"at": failed_at, "state": end, "why": why, "code": 0 if end == "succeeded" else 7}
    (run.folder / "events.jsonl").write_text(json.dumps(event) + "\n", "utf-8")
    ranks = [{"role": "worker", "rank": r, "state": "failed" if r == 1 else "ended", "code": 7}
             for r in range(2)]  # fmt: skip
    status = {"attempt": 0, "nodes": [{"host": "node-a", "ranks": ranks}],
              "verdict": {"failed_at": failed_at}}  # fmt: skip
    (run.folder / "status.json").write_text(json.dumps(status), "utf-8")
    return run


def write_log(directory: Path, rank: int, chunks: Sequence[tuple[float, bytes]]) -> None:
    """A rank's log, and the times of its lines, in the format of local/output/times.py."""
    times, offset = [(1 << 63, rank)], 0
    for seconds, data in chunks:
        times.append((offset, int((BEGAN + seconds) * 1e9)))
        offset += len(data)
    (directory / f"workerlog.{rank}").write_bytes(b"".join(data for _, data in chunks))
    packed = b"".join(struct.pack("<QQ", *row) for row in times)
    (directory / f"workerlog.{rank}.times").write_bytes(packed)


def ask(
    app: Guard,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, str], str]:
    """One request to an application: its status, headers and body.

    headers: instead of those of a browser that has the cookie.
    """
    path, _, query = path.partition("?")
    if headers is None:
        headers = {"host": f"127.0.0.1:{PORT}", "cookie": COOKIE}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
        "server": ("127.0.0.1", PORT), "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip
    sent: list[Any] = []
    asked = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if not asked:
            await asyncio.Event().wait()  # the browser stays
        return asked.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]  # Starlette's Scope
    found = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], found, body.decode()


def page(app: Guard, path: str) -> str:
    """The body of a page that must be there."""
    status, _, body = ask(app, path)
    assert status == 200, body
    return body
