"""The connection to a host: ssh, the archive if it is not there yet, then requests (wire.py)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paddock.backends.files import program
from paddock.backends.node.wire import Wire, WireEnded
from paddock.backends.ssh.command import Target, boot_command
from paddock.backends.text import clean
from paddock.errors import PaddockError

LINE_LIMIT_BYTES = 1 << 16
ANSWER_SECONDS = 60.0
END_SECONDS = 5.0
# What a path of a Unix socket may have (sys/un.h), less %C and what ssh appends meanwhile.
SOCKET_BYTES = 104 - 1 - 40 - 18


class HostError(PaddockError):
    """The failure of a request at a host, whose name begins the message."""

    def __init__(self, host: str, message: str, hint: str = "") -> None:
        super().__init__(f"{host}: {message}", hint=hint)


class Answer(dict[str, Any]):
    """The answer of a host. A missing key raises HostError."""

    def __init__(self, host: str, row: dict[str, Any]) -> None:
        super().__init__(row)
        self._host = host

    def __missing__(self, key: str) -> Any:
        raise HostError(self._host, f"its answer does not say '{key}'")


class Channel:
    """The connection to a host that answers requests; closing it ends an attached job there."""

    def __init__(self, target: Target, answer_seconds: float = ANSWER_SECONDS) -> None:
        """Connect. answer_seconds: the time limit of every answer. Raises HostError."""
        self.target = target
        self.answer_seconds = answer_seconds
        self._lock = threading.Lock()
        self._why: HostError | None = None  # once the connection has broken
        self._is_up = False
        self.version = ""  # of the host's Python, such as 3.11.2
        # A file: the master connection that ssh leaves behind keeps its stderr open.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() does
        command = boot_command(program.digest(has_ps=target.has_ps), target.python)
        try:
            self._process = subprocess.Popen(
                [*target.connect_args(control_path(), sys.executable), command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # a Ctrl-C is ours to answer
            )
        except FileNotFoundError as error:
            raise PaddockError("ssh is not installed", hint="install openssh-client") from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._wire = Wire(self._process.stdout.fileno(), self._process.stdin.fileno())
        self._boot()

    def _boot(self) -> None:
        try:
            found = self._wire.receive(self.answer_seconds)
            if found is None:
                raise self._silent()
            row, _ = found
            if row.get("error"):
                raise self._fault(str(row["error"]), str(row.get("hint", "")))
            self.version = str(row.get("python", ""))
            if row.get("need"):
                archive = program.build(has_ps=self.target.has_ps)
                head = f"{hashlib.sha256(archive).hexdigest()}{len(archive):012}"
                self._wire.write(head.encode() + archive)
        except (WireEnded, OSError) as error:
            raise self._broken() from error
        except (ValueError, json.JSONDecodeError) as error:
            raise self._noisy() from error
        self._is_up = True

    @property
    def is_open(self) -> bool:
        """The connection has not broken, as far as is known."""
        return self._why is None and self._process.poll() is None

    def send(self, op: str, body: Iterable[bytes] = (), **row: Any) -> None:
        """Send a request; receive() returns its answer. body: row["bytes"] bytes, in parts."""
        with self._lock:
            if self._why is not None:
                raise self._why
            try:
                self._wire.write(json.dumps({"op": op, **row}).encode() + b"\n")
                for part in body:
                    self._wire.write(part)
            except OSError as error:
                raise self._broken() from error

    def receive(self, seconds: float | None = None) -> tuple[dict[str, Any], bytes]:
        """Return the next answer. Raises HostError: silent, lost, or an error of the host."""
        try:
            message = self._wire.receive(seconds)
        except (WireEnded, OSError) as error:
            raise self._broken() from error
        except ValueError as error:
            self._why = self._fault("it answers something that is no message")
            raise self._why from error
        if message is None:
            raise self._silent()
        row, data = message
        if row.get("error"):
            raise self._fault(str(row["error"]), str(row.get("hint", "")))
        return row, data

    def ask(self, op: str, **row: Any) -> dict[str, Any]:
        """Send a request and return its answer; delete and clear have no time limit."""
        self.send(op, **row)
        row, _ = self.receive(None if op in ("delete", "clear") else self.answer_seconds)
        return Answer(self.target.login, row)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; detached jobs there go on."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._end()
        self._errors.close()

    def _end(self) -> int:
        """Wait for ssh to end, or kill it: a host may keep its connection open."""
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _fault(self, message: str, hint: str = "") -> HostError:
        return HostError(self.target.login, clean(message), clean(hint))

    def _silent(self) -> HostError:
        """Return the error for a host that does not answer, and end the connection."""
        self._process.kill()
        said = f"it has not answered for {self.answer_seconds:.0f} s"
        self._why = self._fault(said, "is it very busy, or does its file system hang?")
        return self._why

    def _noisy(self) -> HostError:
        """Return the error for unexpected output, of the login shell or of the interpreter."""
        self.close()
        words = [*self.target.connect_args(control_path(), sys.executable), "true"]
        try:
            shell = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                start_new_session=True, timeout=self.answer_seconds,
            )  # fmt: skip
            is_shell = bool(shell.stdout)
        except subprocess.TimeoutExpired:
            is_shell = True
        if is_shell:
            hint = "its login shell prints something: make ~/.bashrc silent for commands"
            return HostError(self.target.login, "it answers something else", hint)
        python = self.target.python or "python3"
        hint = f"--interpreter must run Python and print nothing else: {python} -c pass"
        return HostError(self.target.login, f"{python} prints something of its own", hint)

    def _broken(self) -> HostError:
        """Return the error that says why ssh has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        code = self._end()
        errors = os.pread(self._errors.fileno(), LINE_LIMIT_BYTES, 0).decode("utf-8", "replace")
        what, hint = self.target.failure(code, errors)
        what = f"the connection was lost: {what}" if self._is_up else what
        self._why = HostError(self.target.login, what, hint)
        return self._why


def control_path() -> str:
    """Return the ControlPath of ssh's master connections; without one, each is one of its own."""
    folder = own_folder("paddock-ssh")
    return f"{folder}/%C" if folder else ""


def own_folder(name: str) -> str:
    """Return a directory for sockets, of this user's alone.

    "" where there is none: another user may write there, or the path is too long for a socket.
    """
    places = [f"{tempfile.gettempdir()}/paddock-{os.getuid()}/{name}"]
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        places.insert(0, f"{runtime}/{name}")
    for place in places:
        if len(os.fsencode(place)) <= SOCKET_BYTES and _is_ours_alone(Path(place)):
            return place
    return ""


def _is_ours_alone(folder: Path) -> bool:
    """Make a directory; return True if no other user can write into it or replace it."""
    try:
        folder.parent.mkdir(exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        found = [path.lstat() for path in (folder, folder.parent)]
    except OSError:
        return False
    return all(
        stat.S_ISDIR(each.st_mode) and each.st_uid == os.getuid() and not each.st_mode & 0o022
        for each in found
    )
