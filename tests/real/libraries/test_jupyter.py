"""Paddock in a real kernel: docs/libraries/jupyter.md and examples/notebook.ipynb."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from pages import ROOT, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from real.conftest import Need

VALUE = "[3.0, 1.0]"
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
GONE_SECONDS_MAX = 15.0  # of ranks whose kernel was killed; their grace is 10 s
WAITS = """
import paddock

def wait(path):
    import os, threading
    print("rank", paddock.rank(), "waits", flush=True)
    open(f"{path}.{os.getpid()}", "x").close()
    threading.Event().wait()

paddock.launch(wait, "pid", nproc=2).wait()
"""
FAILS = """
import paddock

def train():
    batch = []
    if paddock.rank() == 1:
        batch[0]  # of an empty batch

paddock.launch(train, nproc=2).result
"""


class Kernel:
    """A kernel in a directory of its own. outputs: of the latest cell, as texts."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.manager import KernelManager

        self.folder = folder
        self.manager: Any = KernelManager()
        self.manager.start_kernel(cwd=str(folder))
        self.client: Any = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.outputs: list[str] = []
        self.cell = ""

    def start(self, code: str) -> None:
        """Send a cell."""
        self.outputs = []
        self.cell = self.client.execute(code)

    def read_until(self, pattern: str) -> str:
        """Take outputs until one has the pattern, or the cell has ended; all of them."""
        while not re.search(pattern, "".join(self.outputs)):
            message = self.client.get_iopub_msg(timeout=60)
            content = message["content"]
            if message["parent_header"].get("msg_id") != self.cell:
                continue  # of the cell before
            if content.get("execution_state") == "idle":
                break
            if "traceback" in content:
                self.outputs.append(re.sub(r"\x1b\[[\d;]*m", "", "\n".join(content["traceback"])))
            elif message["msg_type"] in ("stream", "execute_result"):
                self.outputs.append(content.get("text") or content["data"]["text/plain"])
        return "".join(self.outputs)

    def end(self) -> str:
        """Wait for the end of the cell; all of its outputs."""
        return self.read_until("(?!)")

    def ranks(self) -> list[int]:
        """The pids of the ranks of WAITS, once both wait."""
        deadline = time.monotonic() + 60
        while len(found := [*self.folder.glob("pid.*")]) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # sleep: a file says that a rank has come so far
        return [int(path.suffix[1:]) for path in found]

    def wait_gone(self, pids: list[int]) -> None:
        """Wait until none of the processes is left."""
        deadline = time.monotonic() + GONE_SECONDS_MAX
        while left := [pid for pid in pids if os.path.exists(f"/proc/{pid}")]:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)  # sleep: they are no children of ours


@pytest.fixture
def kernel(need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """A kernel whose runs are recorded in its directory."""
    need(modules=["jupyter_client", "ipykernel", "cloudpickle"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    kernel = Kernel(tmp_path)
    yield kernel
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)


def test_the_notebook_trains_on_two_ranks_and_shows_the_value(
    need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CI and a reader run it: rank 0's lines in the cell, its value as the cell's result."""
    need(modules=["nbclient", "ipykernel", "torch", "cloudpickle"])
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    assert [cell for cell in notebook.cells if cell.get("outputs")] == []  # none is in git
    NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = notebook.cells[-1]["outputs"]
    text = "".join(each.get("text", "") for each in outputs)
    assert re.findall(r"step (\d+): loss", text) == ["0", "50", "100", "150"]  # of one rank
    (value,) = (each["data"]["text/plain"] for each in outputs if "execution_count" in each)
    assert value == VALUE


@pytest.mark.parametrize("page", ["jupyter.md", "jupyter.zh.md"])
def test_the_page_shows_the_cell_and_the_value_of_the_notebook(page: str) -> None:
    """A reader who types it gets what the page shows."""
    import json

    cells = ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]]
    blocks = blocks_of(ROOT / "docs" / "libraries" / page)
    assert [b.body.strip() for b in blocks if b.language == "python"] == [cells[-1]]
    assert VALUE in "".join(b.body for b in blocks)


def test_a_cell_shows_its_own_line_is_interrupted_and_ends_with_its_kernel(kernel: Kernel) -> None:
    """A failure, the stop button, and a kernel that is killed: nothing is left."""
    kernel.start(FAILS)
    text = kernel.end()
    assert re.search(r"RankFailedError: train-\w+: rank 1 .*IndexError", text)
    assert "batch[0]  # of an empty batch" in text.rpartition("RankFailedError")[2]

    kernel.start(WAITS)
    kernel.read_until("rank 0 waits")
    pids = kernel.ranks()
    kernel.manager.interrupt_kernel()
    assert "KeyboardInterrupt" in kernel.end()
    kernel.wait_gone(pids)
    for path in kernel.folder.glob("pid.*"):
        path.unlink()

    kernel.start(WAITS)
    pids = kernel.ranks()
    os.kill(kernel.manager.provisioner.pid, signal.SIGKILL)
    kernel.wait_gone(pids)
