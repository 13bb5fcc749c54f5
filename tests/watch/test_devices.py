"""The use of devices, from outputs of real tools and from a tool that a test has written.

No device was there: that a real nvidia-smi answers the question as asked is not tried here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from paddock.watch import devices
from paddock.watch.devices import DeviceProbe, DeviceUse, read_use

GOLDEN = Path(__file__).parent.parent / "accel" / "golden"


@pytest.mark.parametrize(
    ("kind", "file", "found"),
    [
        ("xpu", "xpu_smi.txt", {"0": DeviceUse(0.0, 0), "1": DeviceUse(0.0, 0)}),
        ("dcu", "hy-smi.txt", dict.fromkeys("0123", DeviceUse(0.0))),
        ("dcu", "rocm-smi.txt", dict.fromkeys("01", DeviceUse(0.0))),
    ],
)
def test_the_tables_of_tools(kind: str, file: str, found: dict[str, DeviceUse]) -> None:
    assert read_use(kind, (GOLDEN / file).read_text()) == found


def test_nvidia_tells_what_it_does_not_know() -> None:
    assert read_use("gpu", "0, GPU-5a, [N/A], 512\nUnable to determine\n") == {
        "0": DeviceUse(None, 512 << 20), "GPU-5a": DeviceUse(None, 512 << 20),
    }  # fmt: skip


def fake_smi(folder: Path, body: str) -> str:
    """A PATH with an nvidia-smi that does this."""
    folder.mkdir()
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_samples_have_the_use_of_each_ranks_device(tmp_path: Path) -> None:
    path = fake_smi(tmp_path / "bin", "echo '0, GPU-a, 90, 1024'; echo '1, GPU-b, 10, 2048'")
    env = {**os.environ, "PATH": path, "CUDA_VISIBLE_DEVICES": "0,1",
           "XDG_STATE_HOME": str(tmp_path / "state")}  # fmt: skip
    (tmp_path / "t.py").write_text("import time\ntime.sleep(14)\n")
    argv = [sys.executable, "-m", "paddock", "launch", "--nproc-per-node", "2", "t.py"]
    subprocess.run(argv, cwd=tmp_path, env=env, check=True, timeout=100)
    (history,) = tmp_path.glob("log/runs/*/history.jsonl")
    rows = [json.loads(line) for line in history.read_text().splitlines()]
    last = {r["rank"]: (r.get("gpu"), r.get("gpu_bytes")) for r in rows if r["kind"] == "sample"}
    assert last == {0: (0.9, 1024 << 20), 1: (0.1, 2048 << 20)}


def test_a_tool_that_hangs_is_ended_and_waited_for_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fake_smi(tmp_path / "bin", f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    monkeypatch.setattr(devices, "ASK_SECONDS", 0.5)
    probe = DeviceProbe("gpu", {**os.environ, "PATH": path})
    probe.look(0.0)
    (thread,) = (each for each in threading.enumerate() if each.name == "paddock-devices")
    thread.join(30)
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    assert probe.found == {}
