"""The first words on a host, as its shell reads them."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

from paddock.backends.files.program import build, digest
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


def test_who_brings_the_program_last_takes_it_from_nobody(tmp_path: Path) -> None:
    """Hosts that share a home are all asked at once, and a fresh home lacks it for each of them."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as packed:  # one of as many files, that is soon imported
        for name in zipfile.ZipFile(io.BytesIO(build(has_ps=False))).namelist():
            is_main = name.endswith("backends/node/main.py")
            packed.writestr(name, "def serve(there): pass\n" if is_main else "\n")
    archive = target.getvalue()
    head = f"{hashlib.sha256(archive).hexdigest()}{len(archive):012}".encode()
    words = ["sh", "-c", boot_command(digest(has_ps=False), sys.executable)]
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    hosts = [
        subprocess.Popen(words, env=env, stdin=-1, stdout=-1, stderr=subprocess.PIPE)
        for _ in range(8)
    ]
    assert all(host.stdout is not None for host in hosts)
    needs = [host.stdout.readline() for host in hosts if host.stdout is not None]
    assert all(b'"need": true' in each for each in needs)
    for host in hosts:
        assert host.stdin is not None
        host.stdin.write(head + archive)
        host.stdin.flush()
    assert [host.communicate()[1] for host in hosts] == [b""] * 8
    left = list((tmp_path / ".cache" / "paddock" / "program").iterdir())
    assert [each.name for each in left] == [digest(has_ps=False)]
