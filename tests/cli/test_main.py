"""The first word, errors as people read them, and the small commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from paddock import __version__
from paddock.cli.completion import SHELLS, every_command
from paddock.cli.main import COMMANDS, GROUPS, main, run

SRC = Path(__file__).resolve().parents[2] / "src"


@pytest.mark.parametrize("words", [[], ["help"], ["--help"], ["-h"]])
def test_help_lists_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """On standard output, exit code 0."""
    assert run(words) == 0
    out, err = capsys.readouterr()
    assert all(f"  {name} " in out for name in COMMANDS)
    assert err == ""


def test_every_command_is_in_one_group_of_the_overview() -> None:
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["lunch"], "'lunch' is not a command", "did you mean 'launch'?"),
        (["help", "explian"], "'explian' is not a command", "'explain'"),
        (["train.py"], "'train.py' is not a command", "paddock launch train.py"),
        (["--nnodes"], "'--nnodes' is not a command", "paddock launch --nnodes"),
        (["completion", "tcsh"], "'tcsh' is not one of its values", "bash, zsh, fish"),
        (["kill"], "'kill' is not a command", "did you mean 'paddock stop'?"),
        (["-v"], "'-v' is not a command", "did you mean 'paddock version'?"),
        (["torchrun"], "'torchrun' is not a command", "did you mean 'paddock launch'?"),
        (["xyzzy"], "'xyzzy' is not a command", "paddock help lists the commands"),
        (["explain"], "no script is given", "paddock explain [flags] train.py"),
        (["completion"], "SHELL is not given", "paddock completion SHELL"),
        (["version", "-x"], "unknown flag -x", "paddock version --help"),
        (["explain", "--nnodes", "0", "a.py"], "--nnodes 0", "--nnodes 1"),
    ],
)
def test_a_mistake_is_a_line_and_a_hint(
    words: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, no traceback, exit code 2."""
    assert run(words) == 2
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert first.startswith("paddock: error: ")
    assert message in first
    assert second.startswith("  hint: ")
    assert hint in second
    assert out == ""


def test_main_exits_with_the_code_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The console script."""
    with pytest.raises(SystemExit) as caught:
        main(["nonsense"])
    assert caught.value.code == 2
    assert "nonsense" in capsys.readouterr().err


def test_the_module_runs_like_the_script() -> None:
    """python -m paddock; a closed pipe is not a traceback."""
    run = subprocess.run(
        [sys.executable, "-I", "-c",
         f"import sys; sys.path.insert(0, {str(SRC)!r}); sys.argv = ['paddock', 'version'];"
         "import runpy; runpy.run_module('paddock', run_name='__main__')"],
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"paddock {__version__}\n")


def test_version_imports_no_framework(capsys: pytest.CaptureFixture[str]) -> None:
    """Importing Paddle costs a second and 300 MiB."""
    before = set(sys.modules)
    assert run(["version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["paddock"] == __version__
    assert set(found["frameworks"]) == {"paddle", "torch", "jax", "mpi4py"}
    assert not {"paddle", "torch", "jax"} & (set(sys.modules) - before)


def test_no_help_spells_a_flag_with_underscores() -> None:
    """One spelling: that of completion, too."""
    flags = [flag for command in every_command() for flag in command.table.flags]
    assert [f.help for f in flags if re.search(r"--[a-z-]*_", " ".join((f.help, *f.names)))] == []


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_offers_commands_flags_and_values(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written from the same tables as the help."""
    assert run(["completion", shell]) == 0
    out = capsys.readouterr().out
    for word in (*COMMANDS, "nproc_per_node", "gpus", "ps-heter", "torch", "log_dir"):
        assert word in out
    assert "auto_tuner_json" not in out


def test_bash_completes_what_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run by a real bash: commands, flags, values, files."""
    assert run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "train.py").touch()

    def complete(*words: str) -> list[str]:
        line = " ".join(f"'{w}'" for w in words)
        code = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _paddock\n"
        code += 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(
            ["bash", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path,
            timeout=20,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    assert complete("paddock", "la") == ["launch"]
    assert complete("paddock", "launch", "--nproc") == ["--nproc-per-node"]
    assert complete("paddock", "launch", "--nproc_") == ["--nproc_per_node"]
    assert complete("paddock", "launch", "--run_mode", "ps") == ["ps", "ps-heter"]
    assert complete("paddock", "explain", "tr") == ["train.py"]
    assert complete("paddock", "completion", "z") == ["zsh"]


def test_a_ctrl_c_before_the_launcher_listens_ends_it_without_a_word(tmp_path: Path) -> None:
    """While modules are imported: no traceback, and no rank."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'paddock.jobfile.parse':\n"
        "            os.kill(os.getpid(), 2)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    (tmp_path / "train.py").write_text("open('ran', 'w')\n")
    ended = subprocess.run(
        [sys.executable, "-m", "paddock", "launch", "train.py"],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{SRC}"},
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (130, b"")
    assert not (tmp_path / "ran").exists()
