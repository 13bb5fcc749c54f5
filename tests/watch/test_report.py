"""paddock.report in real ranks, and the commands that read a run's history."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import paddock
from paddock.watch.progress import read_reports
from schemas import SCHEMAS, mistakes
from watched import launched

SLOW_IMPORT = """\
import sys, time
class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name == "paddock.watch.looks":
            open("slow", "w").close()
            time.sleep(3)  # sleep: the imports are slow here
sys.meta_path.insert(0, Finder)
"""
REPORTS = """\
import time, paddock
for step in range(600):
    paddock.report(step=step, loss=1 / (step + 1))
    time.sleep(0.05)
"""


def test_a_report_outside_of_a_launch_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same script runs by itself."""
    monkeypatch.delenv("PADDOCK_REPORT_FD", raising=False)
    assert paddock.report(step=1, loss=0.5) is False
    with pytest.raises(TypeError, match="loss is a str"):
        paddock.report(loss="low")  # type: ignore[arg-type]  # the mistake of a user


def test_a_number_that_is_another_file_gets_no_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program that a rank starts has its variable, and may have closed its descriptors."""
    with open(tmp_path / "theirs", "wb", buffering=0) as file:
        monkeypatch.setenv("PADDOCK_REPORT_FD", str(file.fileno()))
        assert paddock.report(step=1) is False
    assert (tmp_path / "theirs").read_bytes() == b""


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (b'{"step": 1%s}' % (b"0" * 400), None),  # isfinite() raises for such a number
        (b'{"step": 1%s, "loss": 2}' % (b"0" * 400), (None, None, (("loss", 2),))),
        (b'{"step": NaN, "epoch": Infinity, "loss": NaN}', (None, None, ("loss",))),
        (b'{"step": 1e300, "epoch": 2}', (None, 2, ())),
        (b'{"step": true, "a": "b"}', None),
        (b"[" * 60000, None),
        (b"\0" * 60000, None),
        (b'{"step": 3}\n{"step": ', (3, None, ())),
        (json.dumps({str(n): n for n in range(3000)}).encode(), (None, None, 24)),
    ],
)  # fmt: skip
def test_a_damaged_report_ends_nothing(text: bytes, read: object) -> None:
    """A rank may write anything."""
    found = read_reports(text)
    if read is None or found is None:
        assert found is read
        return
    step, epoch, values = read  # type: ignore[misc]  # of the table above
    assert (found.step, found.epoch) == (step, epoch)
    names = tuple(name for name, _ in found.values)
    assert values in (found.values, names, len(names))


@pytest.mark.limit(90)
def test_reports_reach_the_history_and_the_commands(tmp_path: Path) -> None:
    with launched(tmp_path, REPORTS, flags=("--nproc-per-node", "2")) as run:
        run.wait(lambda: {row["rank"] for row in run.rows("progress")} == {0, 1})
        row = run.wait_row("progress")
        assert row["profile"] == "paddock.report"
        assert row["values"]["loss"] == pytest.approx(1 / (row["step"] + 1))
        board = run.paddock("top", run.run_id)
        assert f"{run.run_id}: 2 ranks" in board
        bill = json.loads(run.paddock("bill", run.run_id, "--json"))
        assert mistakes("bill.json", bill) == []
        assert bill["ranks"] == 2
        assert bill["is_over"] is False
        total = sum(each["rank_seconds"] for each in bill["spent"])
        assert total == pytest.approx(bill["wall_seconds"] * 2)
        stacks = json.loads(run.paddock("stacks", run.run_id, "--json"))
        assert mistakes("stacks.json", stacks) == []
        assert [each["rank"] for each in stacks["ranks"]] == [0, 1]
        assert run.rows("stacks")[0]["why"] == "asked"
        history = Draft202012Validator(SCHEMAS["history.json"])  # a kind may have more fields
        assert [e.message for row in run.rows() for e in history.iter_errors(row)] == []


@pytest.mark.limit(90)
def test_the_reports_of_a_short_job_are_kept_on_a_busy_machine(tmp_path: Path) -> None:
    """Its watch begins when it has ended; the imports of that take seconds under load."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT)
    (tmp_path / "train.py").write_text("import paddock\npaddock.report(step=1, loss=0.5)\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": path}
    argv = [sys.executable, "-m", "paddock", "launch", "--nproc-per-node", "1", "train.py"]
    subprocess.run(argv, cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "slow").exists()
    (history,) = tmp_path.glob("log/runs/*/history.jsonl")
    rows = [json.loads(line) for line in history.read_text().splitlines()]
    assert [row["values"] for row in rows if row["kind"] == "progress"] == [{"loss": 0.5}]


@pytest.mark.limit(90)
def test_a_run_that_cannot_be_watched_has_no_stacks_and_ends(tmp_path: Path) -> None:
    """The place of its history is taken; who asks for stacks does not wait for them."""
    script = "import glob, os, time\nos.mkdir(glob.glob('log/runs/*')[0] + '/history.jsonl')\n"
    with launched(tmp_path, script + "time.sleep(99)", flags=("--nproc-per-node", "1")) as run:
        told = run.wait(lambda: "this run is not watched" in (tmp_path / "out.txt").read_text())
        name = run.wait(lambda: sorted(tmp_path.glob("log/runs/*/control")))[0].parent.name
        with pytest.raises(AssertionError, match=f"no launcher of {name} answers now"):
            assert told and run.paddock("stacks", name)


@pytest.mark.limit(90)
def test_the_plain_board_draws_itself_anew_and_leaves_the_terminal_as_it_was(
    tmp_path: Path,
) -> None:
    """On a real terminal; Ctrl-C leaves."""
    with launched(tmp_path, REPORTS, flags=("--nproc-per-node", "1")) as run:
        run.wait_row("progress")
        argv = [sys.executable, "-m", "paddock", "top", "--plain", "--every", "0.2", run.run_id]
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            argv, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(theirs)
        seen, until = b"", time.monotonic() + 40
        while seen.count(b"\x1b[H") < 3 and time.monotonic() < until:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        seen += os.read(ours, 65536)
        os.close(ours)
        assert run.run_id.encode() in seen
        assert seen.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")


@pytest.mark.limit(90)
def test_the_board_with_keys_shows_stacks_and_asks_before_it_stops(tmp_path: Path) -> None:
    """By textual's pilot: s, l, and k, which only y makes a stop."""
    pytest.importorskip("textual")
    import asyncio

    from textual.widgets import DataTable, Label, Static

    from paddock.cli.top import BoardSource
    from paddock.cli.top_app import ConfirmScreen, TextScreen, TopApp

    async def play(run_id: str) -> None:
        app = TopApp(BoardSource((run_id,)), 0.2)
        async with app.run_test(size=(120, 40)) as pilot:

            async def until(is_true: object) -> None:
                for _ in range(300):
                    await pilot.pause(0.1)
                    if is_true():  # type: ignore[operator]  # a function without arguments
                        return
                raise AssertionError("it did not come")

            ranks = app.query_one("#ranks", DataTable)
            await until(lambda: ranks.row_count == 2)
            await pilot.press("s")
            await until(lambda: isinstance(app.screen, TextScreen))
            text = app.screen.query_one("#text", Static)
            await until(lambda: "rank" in str(text.render()))
            await pilot.press("escape", "k")
            await until(lambda: isinstance(app.screen, ConfirmScreen))
            assert run_id in str(app.screen.query_one("#question", Label).render())
            await pilot.press("n")
            await until(lambda: not isinstance(app.screen, ConfirmScreen))
            assert run.process.poll() is None
            await pilot.press("k", "y")
            await until(lambda: run.process.poll() is not None)

    with launched(tmp_path, REPORTS, flags=("--nproc-per-node", "2")) as run:
        run.wait_row("sample")
        asyncio.run(play(run.run_id))
        assert run.process.wait(20) == 143
