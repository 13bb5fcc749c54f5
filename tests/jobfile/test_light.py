"""Reading the command line must not cost more than starting a rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"
CODE = """
import sys
before = set(sys.modules)
sys.path.insert(0, {src!r})
from paddock.cli.main import COMMANDS
from paddock.jobfile.parse import parse
parse(
    ["--nproc_per_node", "2", "--gpus", "0,1", "--nnodes", "2", "--master", "h:1", "--servers",
     "a:1,b:1", "--worker_num", "2", "--env", "A=1", "train.py", "--lr", "1"],
    {{"PADDLE_JOB_ID": "x", "PADDLE_TRAINER_ENDPOINTS": "a:1,b:1"}},
    python="py",
)
print("\\n".join(sorted(m for m in set(sys.modules) - before if not m.startswith("paddock"))))
"""


def test_parsing_loads_no_module_of_the_standard_library() -> None:
    """argparse, re, typing, dataclasses and enum cost 20 ms together; nothing is loaded at all."""
    run = subprocess.run(
        [sys.executable, "-I", "-c", CODE.format(src=str(SRC))],
        capture_output=True, check=True, text=True, timeout=20,
    )  # fmt: skip
    assert set(run.stdout.split()) <= {"__future__", "gc"}  # which is built in
