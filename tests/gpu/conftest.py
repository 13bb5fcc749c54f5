"""For tests on NVIDIA GPUs: marks them, says what is missing, and asks the driver itself.

What is missing skips a test, always: CI has no accelerator. The frameworks are those of the Python
that runs the tests (`make test-gpu GPU_PYTHON=python3`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.jobs import World

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
LIMIT_SECONDS_GPU = 240.0  # a framework that sees a GPU for the first time compiles
# What a framework says about the devices of this process; an error, or 0, when it has none.
COUNT = {
    "torch": "import torch; print(torch.cuda.device_count())",
    "paddle": "import paddle; print(paddle.device.cuda.device_count())",
    "jax": "import jax; print(sum(d.platform == 'gpu' for d in jax.local_devices()))",
}


@dataclass(frozen=True)
class Gpu:
    """One device as nvidia-smi lists it."""

    index: str
    uuid: str
    name: str


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test below this folder the marker `gpu`, and time."""
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.limit(LIMIT_SECONDS_GPU))


def ask(query: str) -> list[list[str]]:
    """The rows that nvidia-smi prints for a query; [] where it is not there or has no device."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    words = [program, f"--query-{query}", "--format=csv,noheader,nounits"]
    done = subprocess.run(words, capture_output=True, text=True)
    rows = done.stdout.splitlines() if done.returncode == 0 else []
    return [[part.strip() for part in row.split(",")] for row in rows]


@pytest.fixture(scope="session")
def gpus() -> list[Gpu]:
    """The devices of this machine; skips where there is none."""
    if shutil.which("nvidia-smi") is None:
        pytest.skip("no NVIDIA GPU: nvidia-smi is not installed")
    found = [Gpu(*row) for row in ask("gpu=index,uuid,name")]
    if not found:
        pytest.skip("no NVIDIA GPU: nvidia-smi lists none")
    return found


def need_framework(name: str) -> None:
    """Skip where a framework is missing or sees no device. It is asked in a process of its own."""
    words = [sys.executable, "-c", COUNT[name]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        pytest.skip(f"{name} cannot be used here: {last}")
    if done.stdout.split()[-1:] in ([], ["0"]):
        pytest.skip(f"this {name} sees no GPU: it is a build for the processor alone")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A folder with its jobs; all of them are killed after the test."""
    made = World(tmp_path)
    yield made
    made.close()
