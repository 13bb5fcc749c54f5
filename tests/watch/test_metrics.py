"""Metrics for Prometheus: the text, and real launches that are scraped while they run."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from paddock.watch.metrics import METRICS, MetricsServer, RunMetrics, metrics_text, open_port
from watched import launched

if TYPE_CHECKING:
    from pathlib import Path

    from watched import WatchedRun

# A line of a series (exposition_formats, "Text format details").
SERIES = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)+)\})?'
    r" (NaN|[+-]Inf|[+-]?[0-9.]+(?:e[+-]?[0-9]+)?)"
)
FAILS_ONCE = """\
import os, sys, time
attempt = int(os.environ["PADDOCK_ATTEMPT"])
for step in range(10**6):
    print(f"step {step}/500 loss {1 / (step + 1):.4f} 12.5 examples/s", flush=True)
    time.sleep(0.2)
    if attempt == 0 and step == 15 and os.environ["RANK"] == "1":
        sys.exit(7)
"""


def read_text(text: str) -> dict[str, dict[str, float]]:
    """Metric -> labels as text -> value; every rule of the format is checked."""
    found: dict[str, dict[str, float]] = {}
    lines = text.split("\n")
    assert lines.pop() == "", "the last line ends with a line feed"
    family = ""
    for number, line in enumerate(lines):
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            assert family not in found, "a metric is one group"
            found[family] = {}
            kind = "counter" if family.endswith("_total") else "gauge"
            assert lines[number + 1] == f"# TYPE {family} {kind}"
        elif not line.startswith("# TYPE "):
            match = SERIES.fullmatch(line)
            assert match is not None, line
            name, labels, value = match.groups()
            assert name == family, line
            assert (labels or "") not in found[name], "a series is there once"
            found[name][labels or ""] = float(value)
    return found


def scrape(port: int) -> dict[str, dict[str, float]]:
    """The metrics of a port, by our reader and by that of prometheus_client if it is there."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answer.read().decode()
    found = read_text(text)
    try:
        from prometheus_client.parser import text_string_to_metric_families as families
    except ImportError:
        return found
    theirs = [sample for family in families(text) for sample in family.samples]
    assert len(theirs) == sum(len(series) for series in found.values())
    return found


def port_of(run: WatchedRun) -> int:
    """The port that a launch with --metrics-port 0 prints."""
    out = run.folder / "out.txt"
    found: Any = run.wait(lambda: re.search(r"metrics are on port (\d+)", out.read_text()))
    return int(found[1])


def test_hostile_names_and_odd_numbers_are_written_as_the_format_wants() -> None:
    metrics = RunMetrics()
    metrics.add({"kind": "begin", "at": 1.0, "run": 'a"b\\c\nd', "host": "é"})
    metrics.add({"kind": "attempt", "at": 2.0, "attempt": 0, "ranks": [["worker", 0, 1, "log"]]})
    values = {"loss": float("nan"), "x\n# TYPE": float("-inf"), "\ud800": 1e-05}
    metrics.add({"kind": "progress", "at": 1.5e9, "rank": 0, "step": 2**40, "values": values})
    listener = open_port(0)
    server = MetricsServer(listener, metrics.text)
    with urlopen(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics") as answer:
        found = read_text(answer.read().decode())
    server.close()
    assert len(found["paddock_rank_value"]) == 3
    assert [*found["paddock_rank_step"].values()] == [2**40]


def test_nothing_is_told_of_ranks_of_an_attempt_before() -> None:
    metrics = RunMetrics()
    metrics.add({"kind": "begin", "at": 1.0, "run": "r"})
    for attempt, ranks in ((0, [0, 1]), (1, [0])):
        listed = [["worker", rank, 7, "log"] for rank in ranks]
        metrics.add({"kind": "attempt", "at": 2.0, "attempt": attempt, "ranks": listed})
        metrics.add({"kind": "progress", "at": 3.0, "rank": ranks[-1], "step": 5})
    metrics.add({"kind": "progress", "at": 4.0, "rank": 1, "step": 6})  # of a rank that is gone
    found = read_text(metrics.text())
    assert found["paddock_rank_step"] == {'run="r",role="worker",rank="0"': 5}
    assert found["paddock_job_restarts_total"] == {'run="r"': 1}


def test_every_metric_has_a_help_and_a_known_type() -> None:
    text = metrics_text([(name, {}, 1) for name in METRICS if not name.startswith("process")])
    assert set(read_text(text)) == set(METRICS)


@pytest.mark.limit(120)
def test_a_launch_is_scraped_while_it_runs(tmp_path: Path) -> None:
    """What is scraped stands in the history; the failed attempt is counted."""
    flags = ("--nproc-per-node", "2", "--metrics-port", "0", "--max-restart", "1")
    with launched(tmp_path, FAILS_ONCE, flags=flags) as run:
        port = port_of(run)
        found = run.wait(lambda: "paddock_rank_step" in (f := scrape(port)) and f)
        of_run = f'run="{run.run_id}"'
        first = f'{of_run},role="worker",rank="0"'
        rows = [row for row in run.rows("progress") if row["rank"] == 0]
        assert found["paddock_rank_step"][first] in [row["step"] for row in rows]
        assert found["paddock_rank_rate"][f'{first},unit="examples/s"'] == 12.5
        loss = found["paddock_rank_value"][f'{first},name="loss"']
        assert loss in [row["values"]["loss"] for row in rows]
        assert found["paddock_run_phase"][f'{of_run},phase="running"'] == 1
        assert sum(found["paddock_run_phase"].values()) == 1
        assert found["paddock_job_restarts_total"] == {of_run: 0}
        run.wait(lambda: scrape(port)["paddock_job_restarts_total"] == {of_run: 1})
        assert scrape(port)["paddock_run_attempt"] == {of_run: 1}
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{port}/secret", timeout=10)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        scrape(port)  # those who say nothing hold nobody up
        for each in silent:
            each.close()


@pytest.mark.parametrize("command", ["launch", "pserver"])
def test_a_port_that_is_taken_is_one_error(tmp_path: Path, command: str) -> None:
    """Exit code 2, and nothing was started."""
    if command == "pserver":
        pytest.importorskip("numpy")
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        rest = ["train.py"] if command == "launch" else ["--port", "0"]
        done = subprocess.run(
            [sys.executable, "-m", "paddock", command, "--metrics-port", str(port), *rest],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    assert errors == [f"paddock: error: --metrics-port {port}: Address already in use"]
    assert not (tmp_path / "ran").exists()


def test_a_port_that_is_none_is_refused_with_the_other_problems(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    for command, rest in (("launch", ["train.py"]), ("pserver", [])):
        done = subprocess.run(
            [sys.executable, "-m", "paddock", command, "--metrics-port", "70000", *rest],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert "metrics-port" in done.stderr
