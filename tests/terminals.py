"""Types what the ```console blocks of a page show, and reads what is printed.

Each "$ command" runs in a shell of its own, on a terminal of its own, in the page's folder, and
must end with 0, or with N where its comment says "exit code N". Every line shown below it must be
printed, in that order; lines in between may be left out, and "..." says so. "^C" is typed when all
above it was printed. A line "# terminal 2: anything" begins another terminal: it starts when the
first one has printed what it shows above its first "...", and both go on side by side.

Compared without colours, time stamps and the end of a line: figures with a decimal point, numbers
of processes, ports and widths of columns differ, and "node-a" is this machine.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SECONDS_MAX = 100
ROWS_COLUMNS = (40, 100)
BEGINS = re.compile(r"# .*\b(?:terminal|终端) ?\d")
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STAMP = re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,]?\d*Z? ?")
VARYING = re.compile(
    r"\d+\.\d+|\b\d+s(?= ago)|(?<=-)[0-9a-f]{4}\b|(?<=pid )\d+|(?<=:)\d{4,5}\b|(?<=node-a/)\w+"
)


@dataclass
class Step:
    """A command, and what is shown below it."""

    command: str
    code: int
    shown: list[str] = field(default_factory=list)


def terminals_of(body: str) -> list[list[Step]]:
    """The steps of each terminal of a block."""
    found: list[list[Step]] = [[]]
    for line in body.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            code = re.search(r"# exit code (\d+)", line)
            found[-1].append(Step(line[2:], int(code[1]) if code else 0))
        elif BEGINS.match(line):
            found.append([])
        elif line.strip() and not line.startswith("# "):
            found[-1][-1].shown.append(line)
    return [steps for steps in found if steps]


def plain(line: str) -> str:
    """What can be compared of a line."""
    line = STAMP.sub("", COLOUR.sub("", line)).rstrip()
    line = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "node-a", line)
    line = re.sub(r"\d+ (min|h) (\d+ \w+)", "0.0 s", line)  # a slow machine's seconds
    # A rank whose peer has gone either fails in its all-reduce or is stopped: what comes first.
    line = line.replace("paddock: failed after it: ", "paddock: stopped as a result: ")
    return re.sub("[ \t]+", " ", VARYING.sub("0", line))


def run_block(
    body: str, folder: Path, env: dict[str, str], within: Sequence[str] = ()
) -> list[str]:
    """Run a block's terminals side by side; what was not as shown.

    within: what starts a command elsewhere, on another host.
    """
    complaints: list[str] = []
    terminals = terminals_of(body)
    reached = [threading.Event() for _ in terminals]

    def run_terminal(at: int) -> None:
        try:
            for step in terminals[at]:
                complaints.extend(run_step(step, folder, env, within, reached[at]))
        finally:
            reached[at].set()

    threads = []
    for at in range(len(terminals)):
        threads.append(threading.Thread(target=run_terminal, args=(at,)))
        threads[-1].start()
        reached[at].wait()
    for thread in threads:
        thread.join()
    return complaints


def run_step(
    step: Step, folder: Path, env: dict[str, str], within: Sequence[str], reached: threading.Event
) -> list[str]:
    """Run one command on a terminal; what was not as shown."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *ROWS_COLUMNS, 0, 0))
    shell = subprocess.Popen(
        # A session of its own, for ^C; not by preexec_fn, which JAX warns of if it is imported.
        [*within, "setsid", "--ctty", "bash", "-c", step.command], cwd=folder, env=env,
        stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    left = list(step.shown)
    printed: list[str] = []
    end = time.monotonic() + SECONDS_MAX
    if "..." not in left:
        reached.set()
    try:
        for line in lines_of(master, end):
            printed.append(line)
            if left and plain(left[0]) in ("", plain(line)):
                left.pop(0)
            while left and left[0] in ("...", "^C"):
                if left.pop(0) == "^C":
                    os.write(master, b"\x03")
                else:
                    reached.set()
        code = shell.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = None
    finally:
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        os.close(master)
    if not left and code == step.code:
        return []
    missing = f"not printed: {left[0]}" if left else f"exit code {code}, not {step.code}"
    return ["\n".join([f"$ {step.command}", missing, "printed:", *printed])]


def lines_of(master: int, end: float) -> Iterator[str]:
    """Lines as they are printed, until nobody holds the terminal any more, or the time is over."""
    kept = b""
    while select.select([master], [], [], max(0.0, end - time.monotonic()))[0]:
        try:
            read = os.read(master, 65536)
        except OSError:  # EIO: the last one has closed it
            read = b""
        if not read:
            break
        *lines, kept = (kept + read).split(b"\n")
        yield from (line.decode("utf-8", "replace").rstrip("\r") for line in lines)
    if kept:
        yield kept.decode("utf-8", "replace")
