"""A real job with parameter servers: its history, page, board and metrics tell of them."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from paddock.watch.history import HistoryRows
from paddock.watch.servers import NUMBERS, read_server, row_line
from paddock.watch.view import run_view
from schemas import mistakes
from watch.test_metrics import port_of, scrape
from watched import launched

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = """\
import os, time
import numpy as np
from paddock import ps
rank = int(os.environ["PADDLE_TRAINER_ID"])
with ps.Client(strategy="async") as client:
    client.create(ps.SparseSpec("rows", 4, ps.OptimizerSpec("adagrad", 0.1)))
    client.create(ps.DenseSpec("bias", 64, ps.OptimizerSpec("sgd", 0.1)))
    for step in range(10**6):
        keys = np.random.default_rng([rank, step]).integers(0, 3000, 512)
        rows = client.pull("rows", keys)
        client.push("rows", keys, rows * 0.01 + 1)
        client.push_dense("bias", client.pull_dense("bias") * 0.1)
        print(f"step {step} loss {1 / (step + 1)}", flush=True)
        time.sleep(0.1)
"""


def row_of(at: float, pushes: int, rank: int = 0, **more: object) -> dict[str, Any]:
    """A row of kind ps as a launcher writes it."""
    numbers = dict.fromkeys(NUMBERS, 0)
    return {"kind": "ps", "at": at, "role": "ps", "rank": rank, **numbers, "pushes": pushes,
            "is_primary": True, "tables": [], **more}  # fmt: skip


def test_a_server_that_was_started_again_counts_from_nothing() -> None:
    """No rate is below 0, and the first row of a server has none."""
    rows = [row_of(10, 100), row_of(15, 600), row_of(20, 50), row_of(20, 9, rank=1)]
    view = run_view(HistoryRows(({"kind": "begin", "at": 5.0}, *rows)))
    assert view is not None
    first, second = view.servers
    assert first.rates["pushes"] == ((10.0, None, 100.0), (15.0, None, 10.0))
    assert (first.rate("pushes"), second.rate("pushes")) == (10.0, None)


def test_samples_of_a_server_are_not_those_of_the_worker_with_its_number() -> None:
    ranks = [["worker", 0, 7, "workerlog.0"], ["ps", 0, 8, "serverlog.0"]]
    sample = {"kind": "sample", "rank": 0, "cpu": 1.0, "read": 0, "written": 0}
    rows: tuple[dict[str, Any], ...] = (
        {"kind": "begin", "at": 1.0},
        {"kind": "attempt", "at": 2.0, "attempt": 0, "ranks": ranks},
        {**sample, "at": 3.0, "rss": 100},
        {**sample, "at": 3.0, "rss": 900, "role": "ps"},
        {"kind": "exit", "at": 4.0, "role": "ps", "rank": 0, "how": "was killed"},
    )
    view = run_view(HistoryRows(rows))
    assert view is not None
    found = {rank.role: (rank.rss_bytes, rank.state) for rank in view.ranks}
    assert found == {"worker": (100, "running"), "ps": (900, "was killed")}


def test_a_row_with_many_tables_keeps_the_largest() -> None:
    """A line of the pipe is written whole only up to 4096 bytes."""
    tables = [[f"table {n:04}", n, 5000 - n] for n in range(1000)]
    line = row_line({**dict.fromkeys(NUMBERS, 1), "is_primary": True, "tables": tables}, 4096)
    row = read_server(b'{"pushes": "many"}\n' + line + b"[[[" + b'\n{"step": 3}\n')
    assert row is not None
    assert len(line) <= 4096
    assert row["tables"] == tables[: len(row["tables"])]
    assert len(row["tables"]) > 50


@pytest.mark.limit(150)
def test_a_job_with_servers_tells_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers; one of them is killed, started again, and tells of itself as before."""
    pytest.importorskip("numpy")
    monkeypatch.setenv("PADDOCK_PS_NUMBA", "0")  # nothing is compiled
    flags = ("--server_num", "2", "--worker_num", "2", "--metrics-port", "0")
    with launched(tmp_path, TRAIN, flags=flags) as run:
        port = port_of(run)
        run.wait(lambda: {r["rank"] for r in run.rows("ps") if r["pushes"] > 9} == {0, 1})
        run.wait(lambda: len(run.rows("ps")) > 5)
        row = run.rows("ps")[-1]
        assert mistakes("history.json", row) == []
        assert row["bytes"] == sum(size for _, _, size in row["tables"])
        assert [name for name, *_ in row["tables"]] == ["rows", "bias"]
        assert row["rows"] == row["tables"][0][1] > 500
        assert min(row["pulls"], row["connections"], row["memory_limit"]) > 1

        found = scrape(port)
        told = {r["pushes"] for r in run.rows("ps")}
        assert set(found["paddock_ps_pushes_total"].values()) <= told
        of_table = f'run="{run.run_id}",server="{row["rank"]}",table="rows"'
        assert found["paddock_ps_table_rows"][of_table] > 500

        board = run.paddock("top", run.run_id)
        assert "2 servers · 2 tables · " in board
        assert " pushes/s · " in board
        check_page(run.paddock("report", run.run_id, "--out", "-"))

        pids = {(r[0], r[1]): r[2] for r in run.wait_row("attempt")["ranks"]}
        os.kill(pids["ps", 1], signal.SIGKILL)
        at = time.time() + 2
        again = run.wait(lambda: [r for r in run.rows("ps") if r["rank"] == 1 and r["at"] > at])
        assert again[0]["is_primary"]
        assert "restarted in place" in (tmp_path / "out.txt").read_text()


def check_page(page: str) -> None:
    """The section of the servers, and the curves of both."""
    pytest.importorskip("starlette")
    section = page.partition('<section id="servers"')[2].partition("</section>")[0]
    assert section.count("primary") == 2
    assert "<td>rows</td>" in section
    assert 'aria-label="Pushes/s"' in page
