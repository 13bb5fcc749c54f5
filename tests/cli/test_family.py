"""Every command and order is one family: help, mistakes and completion come from one table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from paddock.cli.completion import bash, every_command, offered
from paddock.cli.family import CliCommand
from paddock.cli.help import command_text
from paddock.cli.main import COMMANDS, run

if TYPE_CHECKING:
    from pathlib import Path

ALL = [*every_command()]


@pytest.fixture(autouse=True)
def _usual_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where nothing says how wide the terminal is."""
    monkeypatch.delenv("COLUMNS", raising=False)


def name_of(command: CliCommand) -> str:
    """As it is typed."""
    return command.name


@pytest.mark.parametrize("command", ALL, ids=name_of)
def test_help_has_one_layout(command: CliCommand, capsys: pytest.CaptureFixture[str]) -> None:
    """A usage line, a sentence, each flag with what it takes; nothing is wider than 100."""
    words = command.name.split()
    assert run([*words, "--help"]) == run([*words, "-h"]) == run(["help", *words]) == 0
    out, err = capsys.readouterr()
    text = out[: len(out) // 3]
    assert (out, err) == (text * 3, "")
    lines = text.splitlines()
    assert lines[0].startswith(f"usage: paddock {command.name}")
    assert max(map(len, lines)) <= 100
    sentence = lines[lines.index("") + 1]
    assert sentence[0].isupper() and sentence.endswith(".")
    if command.common:
        words.append("--help-all")
        assert run(words) == run(["help", *command.name.split(), "--all"]) == 0
        out = capsys.readouterr().out
        text = out[: len(out) // 2]
        assert out == text * 2 and max(map(len, text.splitlines())) <= 100
    for flag in command.flags:
        shown = ", ".join(flag.names) + (f" {flag.value}" if flag.value else "")
        if flag.status not in ("hidden", "ignored"):
            assert re.search(rf"^  {re.escape(shown)}( |$)", text, re.MULTILINE), shown
            assert flag.kind == "switch" or flag.value


@pytest.mark.parametrize("command", ALL, ids=name_of)
def test_an_unknown_flag_is_told_with_the_one_that_was_meant(
    command: CliCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two letters change places in every flag in turn; nothing is done, exit code 2."""
    words = command.name.split()
    for flag in offered(command):
        name = f"--{flag.name[:1]}{flag.name[2:3]}{flag.name[1:2]}{flag.name[3:]}"
        if len(flag.name) < 4 or command.table.find(name[2:]):
            continue
        assert run([*words, name]) == 2
        out, err = capsys.readouterr()
        assert out == "" and f"unknown flag {name}" in err
        assert re.search(rf"hint: did you mean .*--{re.escape(flag.name)}\b", err), err


WORKING = {
    *("bill", "stacks"),  # of the last run
    *("check", "list", "status", "wait", "logs", "fetch", "pserver", "version", "ps", "top", "web"),
}


@pytest.mark.parametrize("name", sorted({*COMMANDS, ""} - WORKING))
def test_without_arguments_a_command_says_what_it_needs(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Help, or what is missing: nothing is begun. The others do their work."""
    code = run(name.split())
    out, err = capsys.readouterr()
    assert ("usage: " in out) if code == 0 else (code == 2 and "hint: " in err)


def test_ps_without_arguments_says_what_it_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """People who know docker look for what is running."""
    assert run(["ps"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "paddock ps --help" in first and "paddock list" in second


def test_every_flag_and_value_is_completed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """By a real bash, which is asked for each flag of each command, and for each choice."""
    code, wanted = [bash()], []
    for command in ALL:
        words = ["paddock", *command.name.split()]
        for flag in offered(command):
            for name in flag.names:
                code.append(asked(*words, name))
                wanted.append(name)
            if flag.choices:
                code.append(asked(*words, f"--{flag.name}", ""))
                wanted.append(" ".join(flag.choices).strip())
                code.append(asked(*words, f"--{flag.name.replace('-', '_')}", "=", ""))
                wanted.append(" ".join(flag.choices).strip())
    done = subprocess.run(
        ["bash"], input="\n".join(code), capture_output=True, text=True, check=True, timeout=60,
        cwd=tmp_path_factory.mktemp("empty"),
    )  # fmt: skip
    assert done.stderr == ""
    got = done.stdout.split("\n")
    missing = [
        one for one, line in zip(wanted, got, strict=False) if not {*one.split()} <= {*line.split()}
    ]
    assert missing == [] and len(got) == len(wanted) + 1


def test_names_with_blanks_are_completed_whole(tmp_path: Path) -> None:
    """And nothing in them is carried out, nor a star in them another name."""
    for name in ("a b.py", "a*", "a$(touch bad)"):
        (tmp_path / name).touch()
    code = [bash(), asked("paddock", "launch", "a").replace("[*]", "[@]"), asked("paddock", "--no")]
    done = subprocess.run(
        ["bash"], input="\n".join(code),
        capture_output=True, text=True, check=True, timeout=20, cwd=tmp_path,
    )  # fmt: skip
    assert sorted(done.stdout.splitlines()) == sorted(["", *os.listdir(tmp_path)])
    assert done.stderr == ""


def asked(*words: str) -> str:
    """Bash code that prints what completes the last word."""
    line = " ".join(f"'{word}'" for word in words)
    place = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}"
    return f'{place}; _paddock; printf "%s\\n" "${{COMPREPLY[*]}}"'


def test_a_closed_pipe_is_no_traceback() -> None:
    """`paddock launch --help | head -1`; what head has read is all there is."""
    for words in ("launch --help", "help ps save", "completion bash", "explain a.py", "version"):
        done = subprocess.run(
            ["sh", "-c", f"'{sys.executable}' -u -m paddock {words} | head -c 1"],
            capture_output=True, text=True, timeout=20, check=True, env=dict(os.environ),
        )  # fmt: skip
        assert (done.stderr, len(done.stdout)) == ("", 1), words


def test_help_is_written_from_the_table_of_a_command() -> None:
    """What is hidden or has no effect is not offered."""
    (split,) = (one for one in ALL if one.name == "data split")
    text = command_text(split)
    assert "--count N" in text and "--key" not in text.replace("'key COLUMN'", "")
