"""The driver with interpreters that are none, and with caches that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from paddock.core.job import Command
from paddock.local.loop import Loop
from paddock.local.sweep import ROUND_SECONDS
from paddock.local.warm.server import WarmServer

if TYPE_CHECKING:
    from pathlib import Path

# What stands where the interpreter should -> why nothing is forked.
WRAPPERS = {
    f'#!/bin/sh\nexec {sys.executable} -I "$@"\n': "(a wrapper? it ended with exit code 0)",
    "#!/bin/sh\nexit 3\n": "not look for sitecustomize (a wrapper? it ended with exit code 3)",
    "#!/bin/sh\nkill -9 $$\n": "(a wrapper? it was killed by signal 9)",
    "#!/no/such/shell\n": "python cannot be started: No such file or directory",
    "": "python cannot be started: ",
}


@pytest.mark.parametrize("text", WRAPPERS, ids=range(len(WRAPPERS)))
def test_what_is_no_interpreter_is_told_and_the_job_starts_cold(tmp_path: Path, text: str) -> None:
    """It says so once; the processes then fail, or not, as they would have."""
    python = tmp_path / "python"
    python.write_text(text, "utf-8")
    python.chmod(0o700 if text else 0o600)
    loop, notes, answers = Loop(), [], []
    env = {"XDG_CACHE_HOME": str(tmp_path), "PATH": os.defpath}
    command = Command("script", "train.py", (), str(python))
    server = WarmServer(loop, command, env, lambda _level, note: notes.append(note))

    def then(pids: object) -> None:
        answers.append(pids)
        loop.stop()

    server.fork(env, [], [], ports=(), before=lambda: None, then=then)
    loop.run()
    server.fork(env, [], [], ports=(), before=lambda: None, then=then)  # answered at once
    server.close()
    loop.close()
    assert answers == [None, None]
    (note,) = notes
    assert WRAPPERS[text] in note


def stop_while_sweeping(folder: Path) -> int:
    """How often it was answered to."""
    loop, answers = Loop(), []
    env = {"XDG_CACHE_HOME": str(folder), "PATH": os.defpath}
    command = Command("script", "train.py", (), str(folder / "missing"))
    server = WarmServer(loop, command, env, lambda _level, _note: None)
    server.fork(env, [], [], ports=(), before=lambda: None, then=answers.append)
    server._is_forking = True
    subprocess.Popen(["sleep", "60"])  # sleep: one that the sweep has to end
    loop.post(server.cancel)  # in the round in which the sweep begins
    loop.at("test", loop.now() + 5 * ROUND_SECONDS, loop.stop)
    loop.run()
    return len(answers)


def test_a_job_that_is_stopped_while_it_sweeps_starts_no_rank(tmp_path: Path) -> None:
    """What a server has forked half is ended first; meanwhile the job may be told to end."""
    pid = os.fork()  # a sweep ends all children
    if not pid:
        code = 99
        try:
            code = stop_while_sweeping(tmp_path)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
