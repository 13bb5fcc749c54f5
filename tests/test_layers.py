"""The layer and purity rules of pyproject.toml: they hold, and each of them can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# One new file each that breaks the named contract and no other.
TRESPASSES = {
    "Layers": ("core/trespass_up.py", "import paddock.cli\n"),
    "Purity": ("core/trespass_time.py", "import time\n"),
    "Contracts do not know one another": (
        "contracts/trespass_two.py",
        "import paddock.contracts.trespass_one\n",
    ),
    "Nothing imports the framework": ("cli/trespass_torch.py", "def f():\n    import torch\n"),
    "Launching needs the standard library": ("agent/trespass_asyncio.py", "import asyncio\n"),
}


def lint(tree: Path) -> tuple[int, str]:
    """Exit code and report of import-linter on a copy of the package, on one line each."""
    script = "import sys; from importlinter.cli import lint_imports_command as c; sys.exit(c())"
    done = subprocess.run(
        [sys.executable, "-c", script, "--no-logo", "--no-cache", "--config", "pyproject.toml"],
        cwd=tree, env={**os.environ, "PYTHONPATH": str(tree / "src"), "COLUMNS": "200"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package and of its rules."""
    pytest.importorskip("importlinter", reason="import-linter is not installed: make .venv/.dev")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=ignore)
    return tmp_path


def test_all_layer_rules_are_kept(tree: Path) -> None:
    """Whoever reads the diagram in architecture.md may believe it."""
    code, report = lint(tree)
    assert code == 0, report


def test_each_layer_rule_can_be_broken(tree: Path) -> None:
    """A rule that no import can break (a misspelt module, say) would guard nothing."""
    package = tree / "src" / "paddock"
    (package / "contracts" / "trespass_one.py").write_text("")
    for name, text in TRESPASSES.values():
        (package / name).write_text(text)
    code, report = lint(tree)
    assert code == 1, report
    broken = [line for line in report.splitlines() if " BROKEN" in line]
    missed = [rule for rule in TRESPASSES if not any(b.startswith(rule) for b in broken)]
    assert missed == [], report
