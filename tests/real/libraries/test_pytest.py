"""The example of docs/libraries/pytest.md: tests on two ranks with real collectives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from real.conftest import Need

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "libraries" / "test_all_reduce.py"


def test_the_example_passes_on_two_ranks(need: Need) -> None:
    """all_reduce and broadcast over gloo, under a pytest of its own."""
    need(modules=["torch", "cloudpickle"])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("page", ["pytest.md", "pytest.zh.md"])
def test_the_page_shows_the_example(page: str) -> None:
    """What a reader copies is what is run, the sum of three ones aside."""
    shown = (ROOT / "docs" / "libraries" / page).read_text("utf-8")
    block = shown.partition("```python\n")[2].partition("```")[0]
    text = EXAMPLE.read_text("utf-8").replace("import pytest\n", "")
    assert block.strip() in text
