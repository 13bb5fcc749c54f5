"""A real etcd for tests: one member or three, on loopback, killed and restarted at will.

Ends only what it started. Ports are picked free, then given to etcd: a small race with other
programs, which shows as a clear failure to start.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from paddock.etcd.address import EtcdAddress, parse_etcd_url
from paddock.etcd.client import EtcdClient, read
from paddock.etcd.reply import EtcdError
from stopped import stop

ETCD = shutil.which("etcd") or "/usr/bin/etcd"
START_SECONDS_MAX = 20.0

needs_etcd = pytest.mark.skipif(
    not os.access(ETCD, os.X_OK), reason="etcd is not installed (apt-get install etcd-server)"
)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nothing used a moment ago, all different."""
    socks = [socket.socket() for _ in range(count)]
    try:
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in socks]
    finally:
        for sock in socks:
            sock.close()


class EtcdServer:
    """An etcd cluster of ``size`` members with its data under ``folder``."""

    def __init__(self, folder: Path, size: int = 1, tls: tuple[Path, Path] | None = None) -> None:
        self.folder = folder
        self._tls = tls  # Certificate and key, for the client's side only.
        ports = free_ports(2 * size)
        self.client_ports, self._peer_ports = ports[:size], ports[size:]
        self._procs: list[subprocess.Popen[bytes] | None] = [None] * size

    def __enter__(self) -> EtcdServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for member in range(len(self._procs)):
            self.resume(member)
            self.kill(member)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.client_ports)
        return f"etcds://{hosts}?ca={self._tls[0]}" if self._tls else f"etcd://{hosts}"

    @property
    def address(self) -> EtcdAddress:
        return parse_etcd_url(self.url)

    def start(self, *members: int) -> None:
        """Starts these members, or all; comes back when the cluster answers."""
        for member in members or range(len(self._procs)):
            self._spawn(member)
        self.wait_ready()

    def kill(self, *members: int) -> None:
        """kill -9 to these members, or all; their data stays."""
        for member in members or range(len(self._procs)):
            proc = self._procs[member]
            if proc is not None:
                proc.kill()
                proc.wait()
                self._procs[member] = None

    def pause(self, member: int) -> None:
        """Stops a member without closing its connections."""
        proc = self._procs[member]
        if proc is not None:
            stop([proc.pid])

    def resume(self, member: int) -> None:
        """Lets a paused member go on."""
        proc = self._procs[member]
        if proc is not None:
            proc.send_signal(signal.SIGCONT)

    def wait_ready(self) -> None:
        """Comes back when a linearizable read works. Raises: AssertionError, with the log."""
        client = EtcdClient(self.address)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                client.txn((), (read("ready?"),), (), 2.0)
                client.close()
                return
            except EtcdError as error:
                assert time.monotonic() < deadline, f"{error}\n{self.log()}"
                time.sleep(0.05)

    def log(self) -> str:
        """The end of every member's log."""
        return "\n".join(p.read_text(errors="replace")[-2000:] for p in self.folder.glob("*.log"))

    def _spawn(self, member: int) -> None:
        assert self._procs[member] is None
        peers = [f"http://127.0.0.1:{port}" for port in self._peer_ports]
        client = f"http{'s' if self._tls else ''}://127.0.0.1:{self.client_ports[member]}"
        tls = [f"--cert-file={self._tls[0]}", f"--key-file={self._tls[1]}"] if self._tls else []
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / f"m{member}.log", "ab") as log:
            self._procs[member] = subprocess.Popen(
                [
                    ETCD,
                    f"--name=m{member}",
                    f"--data-dir={self.folder / f'm{member}'}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peers[member]}",
                    f"--initial-advertise-peer-urls={peers[member]}",
                    "--initial-cluster=" + ",".join(f"m{i}={p}" for i, p in enumerate(peers)),
                    f"--initial-cluster-token={self.folder}",
                    *tls,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
