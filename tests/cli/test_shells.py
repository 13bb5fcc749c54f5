"""Completion in real shells: zsh and fish show what each word does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from paddock.cli.completion import every_command, fish, offered, zsh
from paddock.cli.main import run

if TYPE_CHECKING:
    from pathlib import Path

# Around our function in a real zsh: zsh's own widgets, which need a terminal, print what they get.
EDGES = """
compdef() { : }
_describe() { [[ $1 == -o ]] && shift; print -rl -- "${(@P)2}" }
compadd() { shift; print -rl -- "$@" }
_files() { print -r -- files $@ }
compset() { : }
ask() { words=("$@"); CURRENT=$#words; print -r -- "== $*"; _paddock }
"""


def shell(name: str, code: str, folder: Path) -> str:
    """What the shell prints. Skips where there is none."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    quiet = {"zsh": ["-f"], "fish": ["--no-config"]}[name]
    path = f"{folder}:{sys.exec_prefix}/bin:/usr/bin:/bin"
    done = subprocess.run(
        [name, *quiet], input=code, capture_output=True, text=True, check=True, timeout=25,
        cwd=folder, env={"PATH": path, "HOME": str(folder), "TERM": "dumb"},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def test_zsh_offers_every_flag_with_what_it_does(tmp_path: Path) -> None:
    """It took bash's script, which has no descriptions."""
    asked, wanted = [], {}
    for command in every_command():
        words = f"paddock {command.name} --"
        asked.append(f"ask {words}")
        wanted[words] = {f"{name}:{one.help}" for one in offered(command) for name in one.names}
    out = shell("zsh", "\n".join([EDGES, zsh(), *asked]), tmp_path)
    found = {head: set(body.splitlines()) for head, _, body in
             (part.partition("\n") for part in out.split("== ")[1:])}  # fmt: skip
    assert {words for words, all_ in wanted.items() if found[words] != all_} == set()


@pytest.mark.parametrize(
    ("words", "offered_first"),
    [
        ("paddock ''", "launch:"),
        ("paddock launch --run_mode ''", "collective"),
        ("paddock launch --run-mode=ps", "collective"),
        ("paddock ps ''", "status:"),
        ("paddock launch --log_dir ''", "files -/"),
        ("paddock launch train.py --n", "files"),
        ("paddock completion ''", "bash"),
    ],
)
def test_zsh_completes_what_is_asked(words: str, offered_first: str, tmp_path: Path) -> None:
    """Commands, values in both spellings, orders, directories, and the script's own words."""
    _, first, *_ = shell("zsh", f"{EDGES}\n{zsh()}\nask {words}", tmp_path).splitlines()
    assert first.startswith(offered_first)


def test_fish_completes_with_descriptions(tmp_path: Path) -> None:
    """Asked as fish asks at the tab key."""
    words = "la", "launch --nproc", "launch --nproc_"
    asked = "".join(f'complete -C "paddock {each}"\n' for each in words)
    out = shell("fish", fish() + asked, tmp_path).splitlines()
    assert any(line.startswith("launch\tstart a job here") for line in out)
    assert any(line.startswith("--nproc-per-node\tprocesses on this node") for line in out)
    assert out.count("--nproc_per_node") == 1, "only where an underscore is typed"


def test_completion_shows_shells_and_no_internals(capsys: pytest.CaptureFixture[str]) -> None:
    """jobs and sites are for the scripts: taken, and in no help."""
    assert run(["completion", "--help"]) == run(["completion", "sites"]) == 0
    out = capsys.readouterr().out
    assert "(bash, zsh, fish)" in out and "jobs" not in out
