"""paddock.sweep: a run for each point, and the table of what came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import paddock
from api import functions
from local.jobs import wait_until
from paddock.cli import main

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


def test_a_sweep_of_a_function_ends_with_a_table() -> None:
    """Values keep their types, and results come back with what was reported."""

    def train(lr: float, bs: int) -> float:
        paddock.report(step=bs, loss=lr * bs)
        if bs == 3:
            raise ValueError("no batch of 3")
        return lr * bs

    table = paddock.sweep(train, {"lr": [0.5, 1.0], "bs": [2, 3]}, at_once=2, nproc=1)
    assert [row["values"] for row in table] == [
        {"lr": 0.5, "bs": 2}, {"lr": 0.5, "bs": 3}, {"lr": 1.0, "bs": 2}, {"lr": 1.0, "bs": 3},
    ]  # fmt: skip
    assert [row["state"] for row in table] == ["succeeded", "failed", "succeeded", "failed"]
    assert [row["result"] for row in table] == [1.0, None, 2.0, None]
    assert table[1]["why"].endswith(" raised ValueError: no batch of 3")
    assert repr(table) == str(table)  # what `python -i` shows
    assert str(table).splitlines()[0].split()[:4] == ["lr", "bs", "state", "time"]
    assert table.to_csv().splitlines()[0].startswith("name,lr,bs,")
    assert table._repr_html_().count("<tr>") == 5
    assert [row["values"]["lr"] for row in table.sort("-lr")] == [1.0, 1.0, 0.5, 0.5]
    assert len({row["run"] for row in table}) == len(paddock.Run.all()) == 4
    assert paddock.Run.find(table[2]["run"]).result == 2.0


def test_a_script_gets_its_values_as_arguments(own_place: Path) -> None:
    text = "import sys, os; open(os.environ['PADDOCK_SWEEP_N'] + '.txt', 'w').write(sys.argv[1])"
    (own_place / "train.py").write_text(text)
    table = paddock.sweep("train.py", {"n": range(3)}, at_once=3)
    assert {row["state"] for row in table} == {"succeeded"}
    assert [(own_place / f"{n}.txt").read_text() for n in range(3)] == [
        f"--n={n}" for n in range(3)
    ]


def test_what_is_wrong_with_a_grid_is_told_at_once() -> None:
    with pytest.raises(paddock.UsageError) as caught:
        paddock.sweep(pow, {"a b": [1], "x": [], "y": [1, 1]})
    assert len(caught.value.problems) == 3
    with pytest.raises(paddock.UsageError, match="at_once=0"):
        paddock.sweep(pow, {"x": [1]}, at_once=0)
    with pytest.raises(paddock.UsageError, match=r"\{lr\}"):
        paddock.sweep("train.py", {"x": [1]}, "--lr={lr}")


@pytest.mark.parametrize(
    ("grid", "problem"),
    [
        ({}, "the grid is empty"), ([("x", [1])], "the grid is a list"),
        ({"x": 0.1}, "the values of x are no list: 0.1"), ({"x": "abc"}, "no list: 'abc'"),
        ({1: [2]}, "'1' is not a name"), ({"name": [1]}, "'name' is a keyword of paddock.launch"),
    ],
)  # fmt: skip
def test_a_grid_of_another_kind_is_refused(
    grid: Any, problem: str, tmp_path: Path
) -> None:  # fmt: skip
    """With a dict as the example; nothing is recorded."""
    with pytest.raises(paddock.UsageError, match=problem) as caught:
        paddock.sweep(pow, grid)
    assert "--sweep" not in str(caught.value)
    assert not (tmp_path / "state").exists()


def test_a_wrong_call_starts_no_point_and_leaves_no_sweep(tmp_path: Path) -> None:
    with pytest.raises(paddock.UsageError, match="no keyword 'momentum'"):
        paddock.sweep("train.py", {"x": [1, 2]}, momentum=0.9)
    for at_once in ("4", 2.5):
        with pytest.raises(paddock.UsageError, match="at_once"):
            paddock.sweep(pow, {"x": [1]}, at_once=at_once)  # type: ignore[arg-type]
    assert [*(tmp_path / "state" / "paddock" / "sweeps").iterdir()] == []


def test_values_may_come_from_a_generator_for_a_function_that_is_named(own_place: Path) -> None:
    (own_place / "train_this.py").write_text("def train(x):\n    return x * 2\n")
    table = paddock.sweep("train_this:train", {"x": (n for n in (1, 2))}, at_once=2, nproc=1)
    assert [row["result"] for row in table] == [2, 4]


def test_paddock_stop_interrupts_the_program_and_lets_it_go_on(
    own_place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Ctrl-C: a notebook's kernel survives."""
    import subprocess
    import sys

    (own_place / "train.py").write_text("import time; time.sleep(60)")
    code = (
        "import paddock\ntry:\n    paddock.sweep('train.py', {'x': [1, 2]})\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: any(run.status.state == "running" for run in paddock.Run.all()))
        assert main.run(["stop", "train"]) == 0
        assert program.communicate(timeout=60)[0] == "interrupted\n"
    finally:
        program.kill()
    assert "follows it" in capsys.readouterr().err


def test_a_point_that_cannot_start_is_a_failed_row(own_place: Path) -> None:
    table = paddock.sweep("nope.py", {"x": [1]})
    assert (table[0]["state"], "does not exist" in table[0]["why"]) == ("failed", True)


def test_an_interrupt_stops_what_runs(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C: the runs end, what waits is cancelled."""
    import _thread
    import threading

    def hold(x: int) -> None:
        functions.stay(60, str(own_place / f"up{x}"))

    def interrupt() -> None:
        wait_until(lambda: len(list(own_place.glob("up?.0"))) == 2)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        paddock.sweep(hold, {"x": [1, 2, 3]}, at_once=2)
    assert {run.status.state for run in paddock.Run.all()} == {"cancelled"}
    assert not (own_place / "up3.0").exists()
