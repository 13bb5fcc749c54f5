"""Files that a server keeps for a client, where the two see no common directory.

A part of a checkpoint is written here and read by the client that saves; the files of a checkpoint
that is loaded come from the client. Both go in pieces of one frame: what they need is room on this
disk, as much as the server's share of the checkpoint, and no memory.

    DIR/save/<checkpoint>.tmp/server-<k>/...   until the client has it, or another save begins
    DIR/load-<checksum>/<checkpoint>/...       until a snapshot stands behind the LOAD that names it
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from pathlib import Path

from paddock.errors import PaddockError
from paddock.ps.storage.files import remove_tree, writing
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import BODY_MAX

NAME = "parts"
SAVE, LOAD = "save", "load-"
# Of each step of a path: no "..", nothing hidden.
STEP = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
STEPS_MAX = 4


class Spool:
    """The spool of one server. data_dir: where it keeps its log; "" takes a temporary directory."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir
        self._root: Path | None = None
        self._lock = threading.Lock()

    @property
    def root(self) -> Path:
        """The directory, made when it is first asked for. Raises PaddockError."""
        with self._lock:
            if self._root is None:
                parent = Path(self._data_dir or tempfile.gettempdir())
                with writing("cannot keep parts of a checkpoint", parent):
                    if self._data_dir:
                        (parent / NAME).mkdir(exist_ok=True)
                        self._root = parent / NAME
                    else:
                        self._root = Path(tempfile.mkdtemp(prefix="paddock-ps-"))
            return self._root

    def begin_save(self, name: str) -> Path:
        """The directory where write_part writes checkpoint `name`; an earlier save's files go."""
        directory = self.root / SAVE
        remove_tree(directory)
        with writing("cannot keep a part of a checkpoint", self.root):
            self._path(f"{SAVE}/{name}.tmp").mkdir(parents=True)
        return directory

    def files_of_save(self) -> list[tuple[str, int]]:
        """(file, bytes) of what write_part has written, as `read` takes them."""
        found = (path for path in (self.root / SAVE).rglob("*") if path.is_file())
        return [(str(path.relative_to(self.root)), path.stat().st_size) for path in sorted(found)]

    def begin_load(self, checksum: str) -> Path:
        """The directory to which a checkpoint's files are sent."""
        path = self._path(LOAD + checksum)
        with writing("cannot keep the files of a checkpoint", self.root):
            path.mkdir(exist_ok=True)
        return path

    def read(self, file: object, offset: object) -> bytes:
        """At most one frame of a file, from `offset` on. Raises RequestError."""
        path = self._path(file)
        try:
            with path.open("rb") as opened:
                opened.seek(_checked(offset))
                return opened.read(BODY_MAX)
        except FileNotFoundError as error:
            raise RequestError(
                "deadline",
                f"{path} is not kept any more",
                hint="save again: another save has begun, or the server was restarted",
            ) from error
        except OSError as error:
            raise PaddockError(f"{path} cannot be read: {error.strerror}") from error

    def write(self, file: object, offset: object, content: memoryview) -> None:
        """A piece of a file of a checkpoint that is loaded; it may come twice.

        Raises RequestError.
        """
        path = self._path(file)
        if not re.match(f"{LOAD}[^/]+/.+/", str(file)):
            raise RequestError("usage", f"{file!r} is not for a client to write")
        with writing("cannot keep the files of a checkpoint", self.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            with open(descriptor, "wb") as opened:
                opened.seek(_checked(offset))
                opened.write(content)

    def forget(self, what: object) -> None:
        """A save that was read, or the files of a load that is done, are not needed any more."""
        remove_tree(self._path(what))

    def close(self) -> None:
        """The server ends. What is below its data directory may be needed when it starts again."""
        if self._root is not None and not self._data_dir:
            remove_tree(self._root)

    def _path(self, file: object) -> Path:
        steps = str(file).split("/")
        if len(steps) > STEPS_MAX or not all(STEP.fullmatch(step) for step in steps):
            raise RequestError("usage", f"{file!r} is no file of a checkpoint")
        return self.root.joinpath(*steps)


def _checked(offset: object) -> int:
    if type(offset) is not int or not 0 <= offset < 1 << 62:
        raise RequestError("usage", f"an offset of {offset!r}")
    return offset
