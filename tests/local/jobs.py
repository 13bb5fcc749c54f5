"""Jobs of real processes: starts launchers, hears what their ranks tell, counts what is left.

Ranks tell the test through a FIFO, so that a test waits for what happened and not for a time.
Every process of a job carries a mark in its environment, also children in sessions of their own.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from paddock.local.facts.ports import hold_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
MARK = "TEST_JOB_MARK"
WAIT_SECONDS_MAX = 60.0  # for anything that must happen, where no test's own limit ends it
LAST_WORDS_SECONDS = 3.0  # of a test's limit, for saying what has not happened
LOOK_SECONDS = 0.5  # between two looks at launchers, whose ends do not wake a test
GONE_SECONDS_MAX = 5.0

# Put before every script: what a rank knows of itself, and how it speaks to the test.
PRELUDE = """\
import os, signal, sys, time
RANK = int(os.environ.get("PADDLE_TRAINER_ID", "-1"))
WORLD = int(os.environ.get("PADDLE_TRAINERS_NUM", "0"))
ATTEMPT = int(os.environ.get("PADDOCK_ATTEMPT", "-1"))
def tell(*words):
    fd = os.open(os.environ["TEST_EVENTS"], os.O_WRONLY)
    os.write(fd, (" ".join(str(w) for w in words) + "\\n").encode())
    os.close(fd)
def forever():
    while True:
        signal.pause()
def gate():
    os.read(os.open(os.environ["TEST_GATE"], os.O_RDONLY), 1)
"""


def patience() -> float:
    """Seconds that may be waited for what must happen: nearly all that is left of the test's limit.

    The machine may be busy, and how long a test may take is said in one place (tests/conftest.py).
    """
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    return max(left - LAST_WORDS_SECONDS, 0.1) if left else WAIT_SECONDS_MAX


class Events:
    """What the ranks of a test tell, in order of arrival: each event is a tuple of words."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        # Opened for writing too, so that it never ends and a rank never waits for a reader.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        self.seen: list[tuple[str, ...]] = []
        self.running: list[Running] = []  # the launchers whose consoles tell why nothing comes

    def close(self) -> None:
        """Hear no more."""
        os.close(self._fd)

    def poll(self, seconds: float = 0.0) -> bool:
        """Read what came within so many seconds; False when nothing did."""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return False
        *lines, self._rest = (self._rest + os.read(self._fd, 1 << 16)).split(b"\n")
        self.seen += [tuple(line.decode().split(" ")) for line in lines]
        return True

    def all(self, *words: object) -> list[tuple[str, ...]]:
        """The events so far that begin with these words."""
        while self.poll():
            pass
        start = tuple(str(w) for w in words)
        return [event for event in self.seen if event[: len(start)] == start]

    def wait(self, *words: object, count: int = 1) -> list[tuple[str, ...]]:
        """Wait until so many events that begin with these words came; returns them.

        Fails as soon as nobody is left to tell more, with what the launchers said.
        """
        deadline = time.monotonic() + patience()
        while True:
            is_over = self._is_over()  # asked first: what was told before is heard below
            if len(found := self.all(*words)) >= count:
                return found
            left = deadline - time.monotonic()
            text = f"heard {len(found)} of {count} {words}; all: {self.seen}"
            assert left > 0 and not is_over, text + self._told()
            self.poll(min(left, LOOK_SECONDS))

    def _is_over(self) -> bool:
        """Whether every launcher that was started has ended, and all that they started."""
        if not self.running or any(each.process.poll() is None for each in self.running):
            return False
        return not any(marked(each.mark) for each in self.running)

    def _told(self) -> str:
        """What the launchers said, and how those ended that have."""
        texts = []
        for number, running in enumerate(self.running):
            code = running.process.poll()
            state = "runs" if code is None else f"ended with {code}"
            texts.append(f"\n--- launcher {number} {state}:\n{running.text('out')}")
            texts.append(running.text("err"))
        return "".join(texts)


@dataclass(frozen=True)
class Ended:
    """A launcher that has ended. left: pids of its job that were still there long after."""

    code: int
    out: str
    err: str
    left: list[int]

    @property
    def console(self) -> str:
        """Everything the people saw."""
        return self.out + self.err

    def line(self, text: str) -> str:
        """The one line of stderr that has this text."""
        (found,) = [line for line in self.err.splitlines() if text in line]
        return found


class Running:
    """A launcher that was started; its console is read all the time, so that it never waits."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        mark: str,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> None:
        self.mark = mark
        self._texts = {"out": bytearray(), "err": bytearray()}
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**env, MARK: mark},
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE if stdout is None else stdout,
            stderr=subprocess.PIPE if stderr is None else stderr,
            start_new_session=True,  # as a shell does: a Ctrl-C goes to this group
        )
        pipes = {"out": self.process.stdout, "err": self.process.stderr}
        self._pipes = {name: pipe for name, pipe in pipes.items() if pipe is not None}
        self._open = len(self._pipes)
        self._readers = [
            threading.Thread(target=self._read, args=item) for item in self._pipes.items()
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Of the process the user started, which is the guardian."""
        return self.process.pid

    def _read(self, name: str, pipe: IO[bytes]) -> None:
        while True:
            data = os.read(pipe.fileno(), 1 << 18)
            with self._changed:
                self._texts[name] += data
                self._open -= not data
                self._changed.notify_all()
            if not data:
                return

    def text(self, name: str) -> str:
        """What came on "out" or "err" so far."""
        with self._changed:
            return bytes(self._texts[name]).decode("utf-8", "replace")

    def raw(self, name: str) -> bytes:
        """The same as it came."""
        with self._changed:
            return bytes(self._texts[name])

    def wait_for(self, wanted: str, *, count: int = 1) -> None:
        """Wait until the console has shown this text so often."""
        deadline = time.monotonic() + patience()
        with self._changed:
            while True:
                shown = self._texts["out"] + self._texts["err"]
                if shown.count(wanted.encode()) >= count:
                    return
                left = deadline - time.monotonic()
                assert left > 0 and self._open, f"never saw '{wanted}':\n{shown.decode()}"
                self._changed.wait(left)

    def signal(self, number: int) -> None:
        """Send a signal to the process the user started."""
        os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """Send a signal as a terminal does: to the foreground process group."""
        os.killpg(self.pid, number)

    def launcher_pid(self) -> int:
        """The guardian's child that starts the ranks."""
        (pid,) = children_of(self.pid)
        return pid

    def end(self, *, gone_seconds: float = GONE_SECONDS_MAX) -> Ended:
        """Wait for the launcher's own end and look for what it left behind."""
        code = self.process.wait(patience())
        left = wait_gone(self.mark, gone_seconds)
        if not left:  # a survivor would hold the pipes
            self.close()
        return Ended(code, self.text("out"), self.text("err"), left)

    def kill(self) -> None:
        """Leave nothing behind, whatever the test came to."""
        kill_marked(self.mark)
        self.process.wait(patience())
        self.close()

    def close(self) -> str:
        """When nobody writes to the console any more; returns what the people saw."""
        for reader in self._readers:
            reader.join()
        for pipe in self._pipes.values():
            pipe.close()
        return self.text("out") + self.text("err")


class World:
    """One test's folder, scripts, events and jobs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = Events(folder / "events")
        os.mkfifo(folder / "gate")
        self._gate = os.open(folder / "gate", os.O_RDWR | os.O_CLOEXEC)
        self.log_dir = folder / "log"
        self.source = ROOT / "src"
        self.running: list[Running] = self.events.running

    def script(self, text: str, name: str = "train.py") -> str:
        """A Python script with the prelude before it; returns its path."""
        path = self.folder / name
        path.write_text(PRELUDE + text, "utf-8")
        return str(path)

    def env(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment jobs are started with."""
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.source),
            "TEST_EVENTS": str(self.events.path),
            "TEST_GATE": str(self.folder / "gate"),
            **(extra or {}),
        }

    def open_gate(self, ranks: int) -> None:
        """Let so many ranks that wait in gate() go on."""
        os.write(self._gate, b"!" * ranks)

    def start(
        self,
        *words: object,
        env: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        log_dir: Path | None = None,
        mark: str = "",
    ) -> Running:
        """Start `paddock launch` with these words. before: a command to start it with."""
        command = [*before, sys.executable, "-m", "paddock", "launch"]
        command += ["--log_dir", str(log_dir or self.log_dir), *(str(w) for w in words)]
        running = Running(
            command,
            cwd=self.folder,
            env=self.env(env),
            mark=mark or uuid.uuid4().hex,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
        )
        self.running.append(running)
        return running

    def run_on_terminal(self, *words: object, until: bytes) -> tuple[Ended, str]:
        """Launch at a terminal of its own; what that showed, at least until it has these words."""
        read_fd, write_fd = os.openpty()
        running = self.start(*words, stdout=write_fd, stderr=write_fd)
        os.close(write_fd)
        shown = b""
        while until not in shown:
            shown += os.read(read_fd, 1 << 16)
        ended = running.end()
        os.close(read_fd)
        return ended, shown.decode().replace("\r\n", "\n")

    def run(self, *words: object, env: Mapping[str, str] | None = None) -> Ended:
        """Start it and wait for its end."""
        return self.start(*words, env=env).end()

    def log(self, rank: int, kind: str = "worker") -> bytes:
        """What a process's log file holds."""
        return (self.log_dir / f"{kind}log.{rank}").read_bytes()

    def close(self) -> None:
        """End whatever is left of this test."""
        for running in self.running:
            running.kill()
        self.events.close()
        os.close(self._gate)


# ------------------------------------------------------------------------------- processes


def environment_of(pid: int | str) -> dict[str, str]:
    """The environment a process was started with; empty for a zombie or one that is gone."""
    try:
        rows = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (row.decode("utf-8", "replace").partition("=") for row in rows if b"=" in row)
    return {name: content for name, _, content in pairs}


def marked(mark: str, name: str = MARK) -> list[int]:
    """Living processes that carry the mark. Zombies have no environment, so do not count."""
    wanted = f"{name}={mark}".encode()
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if wanted in f.read().split(b"\0"):
                        found.append(int(pid))
            except OSError:
                continue  # it ended while we looked
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for a state of the world that tells nobody when it comes."""
    deadline = time.monotonic() + patience()
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)  # sleep: see above


def wait_gone(mark: str, seconds: float = GONE_SECONDS_MAX, name: str = MARK) -> list[int]:
    """Wait until no process carries the mark; returns those that still do at the end."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark, name)) and time.monotonic() < deadline:
        time.sleep(0.01)  # sleep: the end of somebody else's child wakes nobody
    return left


def kill_marked(mark: str, name: str = MARK) -> None:
    """SIGKILL all that carry the mark, until none is left."""
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while (left := marked(mark, name)) and time.monotonic() < deadline:
        kill_pids(left)
        time.sleep(0.005)  # sleep: a killed process needs a moment to go


def kill_pids(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Signal these processes; those that are gone are no fault."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def free_port() -> int:
    """A port where nobody listens, and none that the kernel gives to whoever connects."""
    held = hold_ports((0,), None)
    port = held.ports[0]
    held.release()
    return port


def children_of(pid: int) -> list[int]:
    """The children of a process, of all its threads."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        text = Path(f"/proc/{pid}/task/{task}/children").read_text("ascii")
        found += [int(word) for word in text.split()]
    return found
