"""What the casts show: real commands, run here. Each scene returns its panes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.hosts import Hosts
from local.jobs import MARK, free_port, kill_marked, patience
from pictures.cast import Pane, normalised
from pictures.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
HERE = re.escape(socket.gethostname())
FAILS = """\
import os
import time

print("epoch 0: loss 0.71", flush=True)
if os.environ["RANK"] == "1":
    time.sleep(0.5)  # sleep: what is filmed
    raise ValueError("sample 812 has 3 labels, the table has 2")
time.sleep(60)  # sleep: until it is stopped
"""
GROWS = """\
import os
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
print(f"rank {rank} of {size}: training", flush=True)
time.sleep(0.5 if size == 2 else 60)  # sleep: what is filmed
"""
TRAINS = """\
import os
import socket
import time

rank, size = os.environ["RANK"], os.environ["WORLD_SIZE"]
print(f"rank {rank} of {size} on {socket.gethostname()}", flush=True)
time.sleep(0.5)  # sleep: until all lines are there
"""


class Stage:
    """A folder with train.py, and terminals; nothing that was started here outlives it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.began = time.monotonic()
        self.mark = uuid.uuid4().hex
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        outer = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "CI")
        self.env = {
            **{n: v for n, v in os.environ.items() if n not in outer and "PADDOCK" not in n},
            "PATH": path, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1",
            MARK: self.mark, "PADDOCK_TOKEN": "the-key-of-the-job",
        }  # fmt: skip

    def type(self, *words: object) -> Terminal:
        """`paddock WORDS` in a terminal."""
        command = [sys.executable, "-m", "paddock", *words]
        return Terminal(command, cwd=self.folder, env=self.env, began=self.began)

    def shot(self, terminal: Terminal, typed: str, names: dict[str, str], *prompt: str) -> Pane:
        """Everything that terminal showed, until its command ended."""
        folder = {re.escape(f"{self.folder}/"): ""}
        lines = [normalised(line, {**folder, **names}) for line in terminal.end(patience())]
        return Pane("".join(prompt), typed, tuple(lines), terminal.began)


@contextmanager
def stage(script: str) -> Iterator[Stage]:
    """A stage whose train.py is this script."""
    folder = Path(tempfile.mkdtemp(prefix="paddock-stage-"))
    (folder / "train.py").write_text(script, "utf-8")
    made = Stage(folder)
    try:
        yield made
    finally:
        kill_marked(made.mark)
        shutil.rmtree(folder)


def failure() -> list[Pane]:
    """One of three ranks raises."""
    typed = "launch --nproc-per-node 3 train.py"
    with stage(FAILS) as on:
        shown = on.type(*typed.split())
        return [on.shot(shown, f"paddock {typed}", {HERE: "node-a"})]


def elastic() -> list[Pane]:
    """A node joins a job that runs with one; both nodes are this machine."""
    typed = "launch --nnodes 1:2 --elastic-timeout 1 --master node-a:6768 train.py"
    port = free_port()
    words = typed.replace("node-a:6768", f"127.0.0.1:{port} --host 127.0.0.1 --log_dir")
    *flags, script = words.split()
    with stage(GROWS) as on:
        first = on.type(*flags, "log-a", script)
        first.wait_for("rank 0 of 1", patience())
        second = on.type(*flags, "log-b", script)
        names = {
            rf"127\.0\.0\.1:{port}": "node-a:6768", r"127\.0\.0\.1": "node-b",
            "log-[ab]/": "log/", rf"{HERE}/\w+": "node-b",
        }  # fmt: skip
        return [
            on.shot(first, f"paddock {typed}", {**names, HERE: "node-a"}, "node-a"),
            on.shot(second, f"paddock {typed}", {**names, HERE: "node-b"}, "node-b"),
        ]


def demo() -> list[Pane]:
    """What `make demo` starts: two processes train one model. Paddle's own notes are left out."""
    typed = "launch --nproc-per-node 2 examples/paddle_digits.py"
    with stage("") as on:
        shutil.copytree(ROOT / "examples", on.folder / "examples")
        on.env |= {"PYTHONWARNINGS": "ignore", "GLOG_minloglevel": "2"}
        shown = on.type(*typed.split())
        return [on.shot(shown, f"paddock {typed}", {HERE: "node-a"})]


def submit() -> list[Pane]:
    """To three hosts with sshd and Python, from a laptop."""
    typed = "submit --hosts h1,h2,h3 --nproc-per-node 2 train.py"
    hosts = Hosts(3)
    try:
        project = hosts.laptop.home / "project"
        project.mkdir()
        (project / "train.py").write_text(TRAINS, "utf-8")
        line = 'cd ~/project && exec "$@"'
        command = ["sh", "-c", line, "sh", sys.executable, "-m", "paddock", *typed.split()]
        began = time.monotonic()
        entered = hosts.laptop.command(["setsid", *command], {"TERM": "xterm-256color"})
        terminal = Terminal(entered, cwd=project, env=os.environ, began=began)
        lines = [normalised(line, {}) for line in terminal.end(patience())]
        return [Pane("laptop", f"paddock {typed}", tuple(lines))]
    finally:
        hosts.close()


SCENES = {"failure": failure, "elastic": elastic, "demo": demo, "submit": submit}
TITLES = {
    "failure": "A rank fails: which, why, and what became of the others",
    "elastic": "A node joins an elastic job, and the job goes on with both",
    "demo": "Two processes train one model",
    "submit": "A job goes to three hosts",
}
