"""Processes of one measurement: started with their output in files, ended by pid, none left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

MARK = "M "  # a child prints "M {json}" for each thing it measured
POLL_SECONDS = 0.01
TAIL_LINES = 15


class ChildFailed(RuntimeError):
    """A process of a measurement ended badly or said nothing in time; its last lines are in it."""


class Child:
    """One process. ``started`` is just before its exec, in seconds of the monotonic clock."""

    def __init__(
        self, name: str, argv: Sequence[str], env: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self.output = folder / f"{name}.log"
        with open(self.output, "wb") as out:
            self.started = time.monotonic()
            self.process = subprocess.Popen(
                list(argv), env=dict(env), cwd=folder, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def text(self) -> str:
        """What it has printed so far, both streams."""
        return self.output.read_text("utf-8", "replace")

    def tail(self) -> str:
        """Its last lines, for an error message."""
        return "\n".join(self.text().splitlines()[-TAIL_LINES:])

    def wait_line(self, word: str, limit_seconds: float) -> float:
        """Wait for output that contains the word; returns the seconds since its exec.

        Raises: ChildFailed when it ended or the limit is over first.
        """
        deadline = time.monotonic() + limit_seconds
        while True:
            ended = self.process.poll() is not None
            if word in self.text():
                return time.monotonic() - self.started
            if ended or time.monotonic() > deadline:
                why = f"exit code {self.process.returncode}" if ended else "time is over"
                raise ChildFailed(f"{self.name} did not print '{word}' ({why}):\n{self.tail()}")
            time.sleep(POLL_SECONDS)

    def wait(self, limit_seconds: float) -> list[dict[str, Any]]:
        """Wait for a good end; returns what it measured. Raises: ChildFailed."""
        try:
            code = self.process.wait(limit_seconds)
        except subprocess.TimeoutExpired as error:
            raise ChildFailed(f"{self.name}: not done in time:\n{self.tail()}") from error
        if code != 0:
            raise ChildFailed(f"{self.name}: exit code {code}:\n{self.tail()}")
        return self.measured()

    def measured(self) -> list[dict[str, Any]]:
        """The JSON of each line that begins with the mark."""
        lines = self.text().splitlines()
        return [json.loads(x[len(MARK) :]) for x in lines if x.startswith(MARK)]

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End it now and wait for it; nothing when it has ended."""
        if self.process.poll() is None:
            os.kill(self.pid, how)
            try:
                self.process.wait(5.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


class Group:
    """A context that starts children and leaves none."""

    def __init__(self, folder: Path) -> None:
        """folder: for their output; also their working directory."""
        self.folder = folder
        self.children: list[Child] = []

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Child:
        """A new process; its output goes to NAME.log."""
        child = Child(name, argv, env, self.folder)
        self.children.append(child)
        return child

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self.children):
            child.kill(signal.SIGTERM)
