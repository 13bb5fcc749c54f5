"""Flags of the launcher behind the script: the script gets them, and a line says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.core.job import Entrypoint
from paddock.jobfile.flags import BY_NAME
from paddock.jobfile.misplaced import NAMES, misplaced_note

PLAIN = "print('trained')\n"
TAKES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--nproc-per-node", type=int)
parser.add_argument("--epochs")
print("got", parser.parse_args().nproc_per_node)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two scripts: one knows no flags, one has a flag of the launcher's name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.py").write_text(PLAIN)
    (tmp_path / "takes.py").write_text(TAKES)
    return tmp_path


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("--nproc_per_node", "2"), "--nproc_per_node 2"),
        (("--nproc-per-node=2", "--epochs", "3"), "--nproc-per-node=2"),
        (("--lr", "1", "--standalone", "--nnodes", "2"), "--standalone --nnodes 2"),
        (("--rdzv_endpoint", "h:1", "--max-restarts=3"), "--rdzv_endpoint h:1 --max-restarts=3"),
    ],
)
def test_a_flag_of_the_launcher_behind_the_script_is_said(args: tuple[str, ...], line: str) -> None:
    """One rank ran, exit code 0, without a word."""
    (note,) = misplaced_note(Entrypoint("script", "plain.py", args, "python"))
    assert note.endswith(f"for the launcher write: paddock launch {line} plain.py ...")


@pytest.mark.parametrize(
    "command",
    [
        Entrypoint("script", "takes.py", ("--nproc_per_node", "2"), "python"),
        Entrypoint("script", "plain.py", ("--epochs", "3", "--devices", "0", "--rank=1"), "python"),
        Entrypoint("program", "torchrun", ("--nproc_per_node", "2", "plain.py"), "python"),
        Entrypoint("module", "torch.distributed.run", ("--nnodes", "2", "x.py"), "python"),
        Entrypoint("script", "missing.py", ("--nnodes", "2"), "python"),
    ],
    ids=["its own flag", "names that scripts have", "a program", "a module", "no script"],
)
def test_what_the_script_may_have_meant_is_not_said(command: Entrypoint) -> None:
    """A warning that is wrong hides those that are right."""
    assert misplaced_note(command) == ()


def test_a_module_of_this_directory_is_read_like_a_script() -> None:
    """-m plain."""
    (note,) = misplaced_note(Entrypoint("module", "plain", ("--nnodes", "2"), "python"))
    assert note.endswith("paddock launch --nnodes 2 -m plain ...")


def test_every_name_is_a_flag_of_the_launcher() -> None:
    """Else the line that is suggested would be an error."""
    assert [name for name in NAMES if name.replace("-", "_") not in BY_NAME] == []


def test_explain_says_it_as_launch_does(capsys: pytest.CaptureFixture[str]) -> None:
    """Both read the command line in one place."""
    assert run(["explain", "plain.py", "--nproc_per_node", "2"]) == 0
    assert "note: --nproc_per_node goes to plain.py" in capsys.readouterr().out
