"""The driver with interpreters that are none, and with caches that cannot be used."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from paddock.core.job import Command
from paddock.local.loop import Loop
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

    server.fork(env, [], [], before=lambda: None, then=then)
    loop.run()
    server.fork(env, [], [], before=lambda: None, then=then)  # answered at once
    server.close()
    loop.close()
    assert answers == [None, None]
    (note,) = notes
    assert WRAPPERS[text] in note
