"""The directory of a run's record: small files of JSON, each replaced as a whole.

They are written in the output thread: a file system that hangs holds up no supervision.
"""

from __future__ import annotations

import os

from paddock.errors import UsageError
from paddock.local.runs.entry import CALLER_FD, json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.core.attempt.policy import Verdict
    from paddock.errors import Problem
    from paddock.local.output.streams import OutputThread

FILE_MODE = 0o600
ERROR, VERDICT, PHASES = "error", "verdict.json", "phases.json"
# The file from which a pod's kubelet takes the reason of a container's end, 4 KiB of it.
TERMINATION_LOG = "PADDOCK_TERMINATION_LOG"
REASON_CHARACTERS = 1000
# Kubernetes sets it in every container of a pod, and its kubelet looks at that path by default.
IN_POD, POD_LOG = "KUBERNETES_SERVICE_HOST", "/dev/termination-log"
READ_BYTES = 1 << 26


class RecordFolder:
    """The files of a run's record. Owned by the loop's thread, which posts to the output thread."""

    def __init__(self, path: str, output: OutputThread, flag: str = "--record") -> None:
        """Make the directory if there is none. flag: the flag that named it. Raises UsageError."""
        self.path = os.path.abspath(path)
        self._output = output
        self._last: dict[str, Mapping[str, object]] = {}
        self._is_broken = False
        try:
            os.makedirs(self.path, 0o700, exist_ok=True)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self.path, flags)
            os.unlink(self._write_beside("try", ""), dir_fd=self._fd)
        except OSError as error:
            raise UsageError(
                f"{flag} '{path}' is not writable: {error.strerror}",
                hint="name a directory of your own, or one that can be made",
            ) from error

    def keep(
        self,
        name: str,
        make: Callable[[], Mapping[str, object]],
        at: float,
        unless: Callable[[Mapping[str, object]], bool] | None = None,
    ) -> None:
        """Write the row of make() in the output thread, with ``at``, unless it has not changed.

        at: seconds since 1970. unless: true of what is there and has to stay.
        """

        def write() -> None:
            row = make()
            if row == self._last.get(name):
                return
            held = self._read(name) if unless is not None else None
            if held is not None and unless is not None and unless(held):
                return
            try:
                self._write(name, json_text({"at": at, **row}) + "\n")
                self._last[name] = row
            except OSError as error:
                self._lose(name, error)

        self._output.do(write)

    def add(self, name: str, row: Mapping[str, object]) -> None:
        """Append a line to a file, in the output thread."""

        def append() -> None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                fd = os.open(name, flags, FILE_MODE, dir_fd=self._fd)
                with open(fd, "w", encoding="utf-8") as file:
                    file.write(json_text(row) + "\n")
            except OSError as error:
                self._lose(name, error)

        self._output.do(append)

    def _lose(self, name: str, error: OSError) -> None:
        """Report once that the record cannot be written (disk full, quota); the job goes on."""
        if not self._is_broken:
            self._is_broken = True
            self._output.say(
                f"paddock: warning: cannot write {self.path}/{name} ({error.strerror}): "
                "the job's status is not kept, the job goes on\n"
            )

    def drop(self, name: str, is_ours: Callable[[Mapping[str, object]], bool]) -> None:
        """Remove a file if it holds what is_ours() calls ours."""

        def remove() -> None:
            self._last.pop(name, None)
            held = self._read(name)
            if held is not None and is_ours(held):
                try:
                    os.unlink(name, dir_fd=self._fd)
                except OSError:
                    return  # another launcher was faster, or nothing can be removed there

        self._output.do(remove)

    def _read(self, name: str) -> Mapping[str, object] | None:
        import json

        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._fd)
            with open(fd, "rb") as file:
                held = json.loads(file.read(READ_BYTES))
        except (OSError, ValueError):
            return None
        return held if isinstance(held, dict) else None

    def _write(self, name: str, text: str) -> None:
        os.replace(self._write_beside(name, text), name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def _write_beside(self, name: str, text: str) -> str:
        """Write to a temporary file that no other launcher writes to; returns its name."""
        temporary = f".{name}.{os.uname().nodename}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, FILE_MODE, dir_fd=self._fd)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
        return temporary


def drop_error(path: str, age_seconds: float = 0.0) -> None:
    """Remove the error of an earlier run with this record. age_seconds: only if it is older."""
    from time import time

    name = os.path.join(path, ERROR)
    try:
        if not age_seconds or time() - os.lstat(name).st_mtime > age_seconds:
            os.unlink(name)
    except OSError:
        return  # there is none


def keep_reason(text: str, verdict: Verdict | None = None, node_rank: int = 0) -> None:
    """Write why this launcher fails, a sentence, to the file that $PADDOCK_TERMINATION_LOG names.

    In a pod without that variable, to its kubelet's. There the verdict is written with it, for
    `paddock status` and the operator, which read it in the status of the pod. node_rank: of this
    launcher.
    """
    env = os.environ
    path = env.get(TERMINATION_LOG) or (POD_LOG if IN_POD in env else "")
    if not path:
        return
    text = " ".join(text.split())[:REASON_CHARACTERS]
    if verdict is not None and IN_POD in env and CALLER_FD not in env:
        from paddock.core.attempt.termination import termination_message

        text = termination_message(text, verdict.culprit, verdict.exits, node_rank)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
        with open(fd, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return  # a full disk, or a container that has no such file


def keep_problems(problems: Sequence[Problem]) -> None:
    """Write what is wrong with a launch, with the hints, for paddock.launch, which reads it."""
    if CALLER_FD in os.environ:
        path = f"{os.environ.get(TERMINATION_LOG)}.json"
        try:
            with open(path, "x", encoding="utf-8") as file:
                file.write(json_text([[each.message, each.hint] for each in problems]))
        except OSError:
            return  # a full disk: the reason is there, without hints


def keep_error(path: str, text: str) -> None:
    """Write this launcher's error into the record at a path, unless another of its job has.

    Blocks, as the launcher ends, perhaps before its output thread starts. path: "" for none.
    """
    keep_reason(text)
    if not path:
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)  # not on Windows
    try:
        fd = os.open(os.path.join(path, ERROR), flags, FILE_MODE)
        with open(fd, "w", encoding="utf-8", errors="replace") as file:
            file.write(f"{text}\n")
    except OSError:
        return  # another launcher was faster, or there is no directory, or no room in it
