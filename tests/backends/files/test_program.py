"""The launcher's archive: made once, named by what it is made from."""

from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from paddock.backends.files import program

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_it_is_packed_once_for_all_who_ask_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Packing takes longer than a connection: 32 hosts at once would cost 32 times as much."""
    fresh, made = importlib.reload(program), []

    class Counted(zipfile.ZipFile):
        def __init__(self, *words: Any) -> None:
            made.append(1)
            super().__init__(*words)

    monkeypatch.setattr(fresh.zipfile, "ZipFile", Counted)
    with ThreadPoolExecutor(8) as pool:
        found = {future.result() for future in [pool.submit(fresh.build) for _ in range(8)]}
    assert (len(made), len(found)) == (1, 1)


def test_its_name_is_of_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that has the sources of another day must be sent these."""
    before = program.digest()
    other = importlib.reload(program)
    monkeypatch.setattr(other, "START", "pass\n")
    changed = other.digest()
    assert changed != before
    assert importlib.reload(program).digest() == before


def test_what_it_unpacks_to_launches(tmp_path: Path) -> None:
    """By a Python that knows nothing else of ours."""
    main = program.unpack_into(tmp_path / "program")
    words = [sys.executable, "-I", "-S", str(main.parent), "version"]
    assert subprocess.run(words, capture_output=True, text=True).stdout.startswith("paddock")
