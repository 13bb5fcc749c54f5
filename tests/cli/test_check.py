"""`paddock check`: a real job per framework; the frameworks are stood in for by small modules.

What the ranks run with the real ones is tested by tests/test_docs.py, where they are installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.check import COMMANDS, Finding, as_lines, cause_of, parse_result
from paddock.cli.family import carry_out
from paddock.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]

# Enough of torch for checks/all_reduce_torch.py: the sum is made through files.
TORCH = """\
import os, time
class cuda:
    is_available = staticmethod(lambda: False)
class device(str):
    type = "cpu"
class Tensor:
    def __init__(self, values): self.values = values
    def item(self): return self.values[0]
def tensor(values, device): return Tensor(values)
"""
DISTRIBUTED = """\
import os, time
RANK, SIZE, DIR = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["STAND_IN"]
def init_process_group(backend): pass
def get_rank(): return RANK
def get_backend(): return "gloo"
def destroy_process_group(): pass
def all_reduce(total):
    path = os.path.join(DIR, f"part{RANK}")
    open(path + ".new", "w").write(str(total.values[0]))
    os.rename(path + ".new", path)
    parts = [os.path.join(DIR, f"part{r}") for r in range(SIZE)]
    while not all(map(os.path.exists, parts)):
        time.sleep(0.01)
    total.values[0] = sum(float(open(p).read()) for p in parts)
"""


def check(
    *words: str, folder: Path, distributed: str = DISTRIBUTED
) -> subprocess.CompletedProcess[str]:
    """Run `paddock check` where the only framework is a stand-in for torch."""
    torch = folder / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text(TORCH)
    (torch / "distributed.py").write_text(distributed)
    code = "from paddock.cli.main import main; main()"
    return subprocess.run(
        # -S: no site-packages, so no framework but the stand-in.
        [sys.executable, "-S", "-c", code, "check", *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}",
            "STAND_IN": str(folder),
            "TMPDIR": str(folder),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )


def test_an_installed_framework_is_checked_and_the_absent_are_named(tmp_path: Path) -> None:
    """Two real processes add 1 and 2; the exit code counts only what is installed."""
    done = check(folder=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[0] == "paddle: not installed"
    assert lines[1].startswith("torch: ok in ")
    assert lines[1].endswith(" s (2 processes on cpu, gloo)")
    assert lines[2] == "jax: not installed"
    assert not list(tmp_path.glob("paddock-check-*")), "nothing is left in the temporary directory"


def test_a_wrong_sum_is_a_failure_with_its_cause_and_its_logs(tmp_path: Path) -> None:
    """Finishing is not enough: the number must be right."""
    wrong = DISTRIBUTED.replace("sum(", "1 + sum(")
    done = check("--framework", "torch", folder=tmp_path, distributed=wrong)
    first, second = done.stdout.splitlines()
    assert done.returncode == 1
    assert first.startswith("torch: failed after ")
    assert first.endswith("exited with code 1; last line: the all-reduce of 1 and 2 gave 4.0")
    assert Path(second.removeprefix("  logs: "), "workerlog.0").exists()
    shutil.rmtree(Path(second.removeprefix("  logs: ")).parent)


def test_ranks_that_end_without_a_result_are_a_failure(tmp_path: Path) -> None:
    """The cause was empty: no rank had failed."""
    done = check("--framework=torch", folder=tmp_path, distributed="import os; os._exit(0)")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].endswith(" s: its ranks ended without a result")


def test_json_has_every_field(tmp_path: Path) -> None:
    """For programs; an absent framework that was asked for is not ok."""
    done = check("--json", "--framework=jax", folder=tmp_path)
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["checks"]
    assert (found["framework"], found["status"]) == ("jax", "not installed")
    assert set(found) >= {"version", "seconds", "device", "backend", "cause", "log_dir"}


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--framework", "tirch"], "--framework tirch: not one of its values", "torch"),
        (["--framework", "mpi"], "--framework mpi: not one of its values", "paddle"),
        (["--framework"], "--framework needs a value", "paddle"),
        (["torch"], "unexpected 'torch'", "paddock check"),
        (["--json=2"], "--json 2: neither true nor false", "--json"),
    ],
)
def test_wrong_words_are_usage_errors(words: list[str], message: str, hint: str) -> None:
    """Exit code 2 and what to write instead."""
    with pytest.raises(UsageError) as caught:
        carry_out("check", COMMANDS, words)
    assert caught.value.message == message
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


def test_the_cause_is_the_first_failure_and_its_last_line(tmp_path: Path) -> None:
    """As they stand in the job's record, and in the log of the rank that failed."""
    job = ["launch", "--record", ".paddock", "--log_dir", "log", "--nproc_per_node=2"]
    (tmp_path / ".paddock").mkdir()
    (tmp_path / "fails.py").write_text("raise ImportError('libx.so')")
    for words, expected in (
        ([*job, "nosuch.py"], "'nosuch.py' does not exist"),
        ([*job, "fails.py"], " raised ImportError: libx.so"),
    ):
        command = [sys.executable, "-m", "paddock", *words]
        code = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=25).returncode
        assert expected in cause_of(code, str(tmp_path))
    assert cause_of(124, str(tmp_path)) == "not finished after 180 s"
    assert cause_of(3, "nowhere") == "exit code 3"


def test_findings_are_one_line_each() -> None:
    """A framework that says nothing at all has not shown that it works."""
    assert parse_result("noise\n") is None
    finding = Finding("jax", "ok", "0.1", 1.25, "cpu", "xla")
    assert as_lines(finding) == ["jax 0.1: ok in 1.2 s (2 processes on cpu, xla)"]
