"""The witness of pairs: keeps who may serve each, on the disk before it answers.

Any running pserver with a data directory is one (`control`, order "lease"); `serve_witness` is one
that does nothing else. The rules are in lease.py; here are the clock and the files.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from paddock.errors import PaddockError
from paddock.ps.replication.lease import LeaseRequest, Register, restored
from paddock.ps.storage.files import lock_directory, read_json, write_json, writing
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.values import value_from

GROUPS_MAX = 10_000
GROUP_LENGTH_MAX = 200
LOOK_SECONDS = 1.0
# What `paddock ps witness` says it serves; servers of any job may ask.
JOB = "(witness)"


# Seconds since the machine started, those asleep too: a lease must run out meanwhile.
boot_seconds = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def request_body(group: str, request: LeaseRequest) -> bytes:
    """The order to a witness. group: the name of the pair."""
    return json.dumps({"do": "lease", "group": group, **asdict(request)}).encode()


class Witness:
    """The registers of any number of pairs, one file each: witness-<group>.json."""

    def __init__(self, directory: Path, clock: Callable[[], float] = boot_seconds) -> None:
        self.directory = directory
        self.clock = clock
        self._lock = threading.Lock()
        self._registers: dict[str, Register] = {}
        self._lock_fd = -1

    def open(self) -> None:
        """Make sure that no other process keeps these registers. Raises PaddockError."""
        with self._lock:
            self._lock_registers()

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """The answer to an order "lease"; a changed register is on the disk before.

        Raises RequestError or PaddockError: then nothing was granted.
        """
        group = order.get("group")
        try:
            if not isinstance(group, str) or not 0 < len(group) <= GROUP_LENGTH_MAX:
                raise ValueError(f"group is {group!r:.40}")
            request: LeaseRequest = value_from(LeaseRequest, order)
        except ValueError as error:
            raise RequestError("usage", f"this is no request for a lease: {error}") from error
        with self._lock:
            self._lock_registers()
            before = self._register(group)
            after, reply = before.answer(request, now=self.clock())
            if after.version != before.version:
                with writing("the witness cannot keep a register", self.directory):
                    write_json(self._path(group), asdict(after))
            self._registers[group] = after
        return asdict(reply)

    def close(self) -> None:
        """Let another process keep these registers."""
        with self._lock:
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
                self._lock_fd = -1

    def _register(self, group: str) -> Register:
        found = self._registers.get(group)
        if found is not None:
            return found
        if len(self._registers) >= GROUPS_MAX:
            raise RequestError("usage", f"this witness has {GROUPS_MAX} pairs already")
        path = self._path(group)
        if not path.exists():
            return Register()
        stored, _ = read_json(path, "register")
        return restored(stored, now=self.clock())

    def _path(self, group: str) -> Path:
        return self.directory / f"witness-{quote(group, safe='')}.json"

    def _lock_registers(self) -> None:
        """The witness locks its directory: two processes would each grant one register."""
        if self._lock_fd >= 0:
            return
        in_use = PaddockError(
            f"the registers in {self.directory} are in use by another witness",
            hint="give each witness its own --data-dir",
        )
        what = "the witness cannot begin"
        self._lock_fd = lock_directory(self.directory, what, in_use, file="witness.lock")


def serve_witness(
    ended: threading.Event,
    *,
    port: int,
    data_dir: str,
    bind: str = "127.0.0.1",
    token: bytes = b"",
    tls_cert: str = "",
    tls_key: str = "",
    say: Callable[[str], None],
    ready: Callable[[str], None],
) -> None:
    """Be a witness and nothing else until `ended` is set.

    ready: called with one line once it listens. Raises UsageError when it cannot listen, and
    PaddockError when another witness uses the directory.
    """
    from paddock.ps.server.engine import Engine
    from paddock.ps.server.options import ServerOptions
    from paddock.ps.server.serve import Server
    from paddock.ps.server.store import Store

    witness = Witness(Path(data_dir))
    witness.open()
    options = ServerOptions(port, bind, index=0, job=JOB, tls_cert=tls_cert, tls_key=tls_key)
    engine = Engine(Store(0, 1), None, "memory")
    server = Server(options, engine, say, token=token, witness=witness)
    server.start()
    ready(f"witness is ready on {bind}:{server.port} (registers in {data_dir})")
    try:
        while not ended.wait(LOOK_SECONDS):  # a signal may come just before the wait
            pass
    finally:
        server.stop()
        witness.close()
