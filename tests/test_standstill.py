"""A machine that stands still is told apart from one that is only busy, test by test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from standstill import KEPT, Watcher

HERE = Path(__file__).resolve().parent
STOOD_SECONDS = 0.5
PLUGIN = """
import os
from standstill import Standstills
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Standstills(config), "standstills")
def pytest_sessionstart(session):
    if plugin := session.config.pluginmanager.get_plugin("standstills"):
        os.environ["WATCHER"] = str(plugin.watcher.process.pid)
"""
# The first one stops the watcher, as it would be on a machine that stands still, and fails.
TESTS = f"""
import os, signal, time
def test_stands():
    os.kill(int(os.environ["WATCHER"]), signal.SIGSTOP)
    time.sleep({STOOD_SECONDS})
    os.kill(int(os.environ["WATCHER"]), signal.SIGCONT)
    assert False
def test_passes():
    pass
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the clocks are those of Linux")


def test_a_standstill_is_told_of_its_own_time_only() -> None:
    """A test that failed before it, or began afterwards, is not excused by it."""
    watcher = Watcher()
    begin = time.time()
    watcher.process.send_signal(signal.SIGSTOP)
    time.sleep(STOOD_SECONDS)  # sleep: this is how long it stands still
    watcher.process.send_signal(signal.SIGCONT)
    end = time.time()
    assert watcher.longest(begin, end) > 0.8 * STOOD_SECONDS
    assert watcher.longest(begin - 2000, begin - 1000) == 0.0
    assert watcher.longest(end + 1000, end + 2000) == 0.0
    watcher.close()
    assert watcher.process.returncode == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failure_says_how_long_the_machine_stood_still(tmp_path: Path, workers: int) -> None:
    """In one process and with a worker; what failed is kept beside pytest's own list."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_it.py").write_text(TESTS)
    words = ("-p", "xdist", "-n", str(workers), "-o", f"cache_dir={tmp_path}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(HERE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    kept = json.loads((tmp_path / "v" / KEPT).read_text())
    assert kept.keys() == {"test_it.py::test_stands"}, done.stdout
    assert kept.keys() == json.loads((tmp_path / "v/cache/lastfailed").read_text()).keys()
    assert kept["test_it.py::test_stands"] > 0.8 * STOOD_SECONDS
    assert "the machine stood still for up to " in done.stdout
