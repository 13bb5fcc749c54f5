"""What a rank's imports teach: only what the script imports, and never the script itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def launch(folder: Path, cache: Path, *words: str) -> str:
    """What the launcher says of a warm launch that ends well."""
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT / "src")}
    argv = [sys.executable, "-m", "paddock", "launch", "--warm", "on", *words]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr.decode()
    return done.stderr.decode()


def learned(folder: Path, *words: str, said: str = "") -> list[str]:
    """The names that two launches of one rank have learned. said: by the second of them."""
    for heard in ("learning what the script imports", said):
        assert f"warm: {heard}" in launch(folder, folder / "cache", *words)
    (path,) = (folder / "cache" / "paddock" / "warm").glob("*.json")
    names = json.loads(path.read_text("utf-8"))["names"]
    assert isinstance(names, list)
    return names


def test_a_module_that_is_only_looked_for_is_not_imported(tmp_path: Path) -> None:
    """importlib.util.find_spec, as libraries ask which others are installed."""
    text = "import colorsys, importlib.util\nimportlib.util.find_spec('wave')\n"
    (tmp_path / "train.py").write_text(text, "utf-8")
    names = learned(tmp_path, "train.py")
    assert "colorsys" in names
    assert "wave" not in names


def test_the_module_that_is_run_is_not_imported(tmp_path: Path) -> None:
    """python -m of an installed module: it would run in the server, and runpy would warn."""
    (tmp_path / "data.json").write_text("{}", "utf-8")
    names = learned(tmp_path, "-m", "json.tool", "data.json")
    assert "json.decoder" in names
    assert "json.tool" not in names
    assert b"RuntimeWarning" not in (tmp_path / "log" / "workerlog.0").read_bytes()


def test_a_script_that_imports_nothing_is_not_learned_for_ever(tmp_path: Path) -> None:
    """The second start says so."""
    (tmp_path / "train.py").write_text("print(1)\n", "utf-8")
    assert learned(tmp_path, "train.py", said="the script imports nothing") == []


def test_what_was_learned_holds_in_the_next_submission(tmp_path: Path) -> None:
    """Each has a directory of its own (--record is what a submission gives the launcher)."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").write_text("import os\nos.environ['A'] = '1'\n", "utf-8")
        (tmp_path / name / "train.py").write_text("import colorsys, own\n", "utf-8")
    for name, said in (("first", "learning what"), ("second", "1 modules imported once")):
        console = launch(tmp_path / name, tmp_path / "cache", "--record", "state", "train.py")
        assert f"warm: {said}" in console
