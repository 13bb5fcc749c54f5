"""The driver with interpreters that are none, and with caches that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from typing import TYPE_CHECKING

import pytest

from paddock.core.job import Entrypoint
from paddock.local.guardian import ROUND_SECONDS, children_of_self
from paddock.local.loop import Loop
from paddock.local.warm.server import WarmServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# What stands where the interpreter should -> why nothing is forked.
WRAPPERS = {
    f'#!/bin/sh\nexec "{sys.executable}" -I "$@"\n': "(a wrapper? it ended with exit code 0)",
    "#!/bin/sh\nexit 3\n": "not look for sitecustomize (a wrapper? it ended with exit code 3)",
    "#!/bin/sh\nkill -9 $$\n": "(a wrapper? it was killed by signal 9)",
    "#!/no/such/shell\n": "python cannot be started: No such file or directory",
    "": "python cannot be started: ",
}


def in_a_process(do: Callable[[], None]) -> None:
    """Do it in one of its own: a sweep ends all children."""
    pid = os.fork()
    if not pid:
        code = 99
        try:
            do()
            code = 0
        except AssertionError:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def make_server(loop: Loop, folder: Path, notes: list[str]) -> WarmServer:
    """Of the interpreter in this folder."""
    env = {"XDG_CACHE_HOME": str(folder), "PATH": os.defpath}
    command = Entrypoint("script", "train.py", (), str(folder / "python"))
    return WarmServer(loop, command, env, lambda _level, note: notes.append(note))


@pytest.mark.parametrize("text", WRAPPERS, ids=range(len(WRAPPERS)))
def test_what_is_no_interpreter_is_told_and_the_job_starts_cold(tmp_path: Path, text: str) -> None:
    """It says so once; the processes then fail, or not, as they would have.

    None that has died is left when they start: a limit of processes would count it.
    """
    python = tmp_path / "python"
    python.write_text(text, "utf-8")
    python.chmod(0o700 if text else 0o600)
    loop, notes, answers = Loop(), [], []
    server = make_server(loop, tmp_path, notes)

    def then(pids: object) -> None:
        answers.append((pids, children_of_self()))
        loop.stop()

    def start() -> None:
        server.fork({}, [], [], ports=(), before=lambda: None, then=then)
        loop.run()
        server.fork({}, [], [], ports=(), before=lambda: None, then=then)  # answered at once
        server.close()
        assert answers == [(None, []), (None, [])]
        (note,) = notes
        assert WRAPPERS[text] in note

    in_a_process(start)
    loop.close()


def test_a_job_that_is_stopped_while_it_sweeps_starts_no_rank(tmp_path: Path) -> None:
    """What a server has forked half is ended first; meanwhile the job may be told to end."""
    loop, answers = Loop(), []
    server = make_server(loop, tmp_path, [])

    def stop() -> None:
        server.fork({}, [], [], ports=(), before=lambda: None, then=answers.append)
        subprocess.Popen(["sleep", "60"])  # sleep: one that the sweep has to end
        loop.post(server.cancel)  # in the round in which the sweep begins
        loop.at("test", loop.now() + 5 * ROUND_SECONDS, loop.stop)
        loop.run()
        assert answers == []

    in_a_process(stop)
    loop.close()
