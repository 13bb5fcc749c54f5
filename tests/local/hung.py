"""A file system that hangs: whoever looks into it sleeps, and not even SIGKILL wakes him.

Spoken by hand with /dev/fuse: the one request that is read and never answered leaves its process
in uninterruptible sleep, as a dead NFS server does (linux/fuse.h; fs/fuse/dev.c,
request_wait_answer). Closing the device lets it go.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FUSE_INIT = 26
IN_HEADER = 40
REQUEST_BYTES = 1 << 18
MNT_DETACH = 2


class HungFolder:
    """Mounted until it is closed; as root only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0"
        name = os.fsencode(path)
        if self._libc.mount(b"hung", name, b"fuse", 0, options.encode()):
            os.close(self._device)
            raise OSError(ctypes.get_errno(), "mount")
        number, unique, body = self._read()
        assert number == FUSE_INIT
        major, minor = struct.unpack_from("<II", body)
        answer = struct.pack("<IIIIHHIIHH", major, min(minor, 31), 0, 0, 16, 12, 1 << 16, 1, 0, 0)
        answer += bytes(64 - len(answer))
        os.write(self._device, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)

    def _read(self) -> tuple[int, int, bytes]:
        request = os.read(self._device, REQUEST_BYTES)
        number, unique = struct.unpack_from("<IQ", request, 4)
        return number, unique, request[IN_HEADER:]

    def wait(self) -> None:
        """Until somebody has looked into it, and hangs."""
        self._read()

    def release(self) -> None:
        """Whoever hangs gets an error."""
        if self._device >= 0:
            os.close(self._device)
            self._device = -1

    def close(self) -> None:
        """As if it had never been."""
        self.release()
        self._libc.umount2(os.fsencode(self.path), MNT_DETACH)
        self.path.rmdir()
