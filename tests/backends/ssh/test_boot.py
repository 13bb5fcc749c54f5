"""The first words on a host, as its shell reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from paddock.backends.files.program import digest
from paddock.backends.ssh.command import EXIT_NO_PYTHON, boot_command

if TYPE_CHECKING:
    from pathlib import Path


def boot(home: Path, python: str) -> subprocess.CompletedProcess[str]:
    words = ["sh", "-c", boot_command(digest(has_ps=False), python)]
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    return subprocess.run(words, env=env, text=True, capture_output=True, stdin=subprocess.DEVNULL)


def test_a_python_below_the_home_of_the_host_is_found(tmp_path: Path) -> None:
    """Its name was quoted on the way: no shell has read the ~."""
    (tmp_path / "my py").mkdir()
    (tmp_path / "my py" / "python").symlink_to(sys.executable)
    assert '"need": true' in boot(tmp_path, "~/my py/python").stdout
    assert boot(tmp_path, "~/other").returncode == EXIT_NO_PYTHON
