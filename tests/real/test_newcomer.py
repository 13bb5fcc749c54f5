"""What a newcomer types: the lines of README.md one after the other, in one shell, in a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pages import ROOT, blocks_of
from terminals import terminals_of

if TYPE_CHECKING:
    from conftest import Need

SECONDS_MAX = 200


def lines_of_the_readme() -> list[str]:
    """All that README.md has to type, in order."""
    typed: list[str] = []
    for block in blocks_of(ROOT / "README.md"):
        if block.language == "bash":
            typed += block.body.splitlines()
        elif block.language == "console":
            typed += [step.command for steps in terminals_of(block.body) for step in steps]
    return typed


@pytest.mark.limit(240)
def test_the_lines_of_the_readme_succeed_one_after_the_other(tmp_path: Path, need: Need) -> None:
    """`make demo` finds all packages in .venv; .ci/fresh tries it where nothing is installed."""
    need(modules=["torch", "paddle", "sklearn"])
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    for name in ("examples", "src", ".ci"):
        shutil.copytree(ROOT / name, clone / name)
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md"):
        shutil.copy2(ROOT / name, clone / name)
    (clone / ".venv").symlink_to(sys.prefix)
    lines = lines_of_the_readme()
    assert len(lines) >= 5
    # Stamps that are newer than all files: what make would install is here.
    make = "make -o .venv/.python -o .venv/.demo-torch -o .venv/.demo-paddle demo"
    script = "\n".join(line.replace("make demo", make) for line in lines)
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "USER": "newcomer"}
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail"], input=script, cwd=clone, env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    for said in ("unseen images", "It worked", "rank 1 of 2", "rank 0 of 2: sum 2"):
        assert said in done.stdout, f"{said!r} is missing:\n{done.stdout}"
