"""paddock warm: what --warm has learned, as a user sees it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.local.warm.keep import DaemonDirectory, folder_of
from paddock.local.warm.profile import ImportProfile, folder, make_folder


@pytest.fixture
def learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImportProfile:
    """Of a script that sets a variable, and with a module that starts a thread."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = ImportProfile(os.path.join(folder(os.environ), "one.json"))
    found.script = str(tmp_path / "train.py")
    Path(found.script).write_text("import json\n")
    found.add("i\0json\ni\0busy\nw\0MODE\0train.py:3\ni\0csv\n", was_warm=False)
    found.left_out["busy"] = "it starts a thread"
    assert found.write("python") == ""
    return found


def test_list_says_what_is_left_out_and_why(
    learned: ImportProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each reason."""
    assert run(["warm", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        learned.script,
        "  1 module imported once per node",
        "  each process imports 1 module by itself, after train.py:3 sets MODE "
        "(--env MODE=... sets it before)",
        "  left out busy: it starts a thread",
    ]


def test_list_has_json_for_programs(
    learned: ImportProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object for each script."""
    assert run(["warm", "list", "--json", learned.script]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["script"], row["modules"]) == (learned.script, 1)
    assert row["left_out"] == {"busy": "it starts a thread"}


def test_who_is_kept_is_listed_though_all_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has memory, and `paddock warm stop` ends it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    place = DaemonDirectory(folder_of(os.environ), "one")
    make_folder(place.folder)
    lock = place.take()
    assert lock is not None
    os.write(lock, json.dumps({"pid": os.getpid(), "script": "a.py", "state": "idle"}).encode())
    try:
        assert run(["warm", "list"]) == 0
    finally:
        os.close(lock)
    script, modules, kept = capsys.readouterr().out.splitlines()
    assert (script, modules) == ("a.py", "  0 modules imported once per node")
    assert kept.startswith(f"  kept by pid {os.getpid()}: idle, ")


def test_forget_removes_what_was_learned(
    learned: ImportProfile, capsys: pytest.CaptureFixture[str]
) -> None:
    """Afterwards there is nothing to list."""
    assert run(["warm", "forget", learned.script]) == 0
    assert not os.path.exists(learned.path)
    assert run(["warm", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "forgot 1 script",
        "nothing is learned yet: paddock launch --warm on SCRIPT",
    ]


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["forgt"], "'forgt' is not an order of paddock warm", "'forget'"),
        (["list", "--jsn"], "unknown flag --jsn", "--json"),
        (["forget", "other.py"], "nothing is learned of 'other.py'", "paddock warm list"),
    ],
)
def test_a_mistake_is_told(
    words: list[str],
    message: str,
    hint: str,
    learned: ImportProfile,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is forgotten by it."""
    assert run(["warm", *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert hint in err
    assert os.path.exists(learned.path)
