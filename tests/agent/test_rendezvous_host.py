"""Node 0 is found among the hosts of an allocation, and nobody else is taken for it."""

from __future__ import annotations

import socket
from contextlib import closing
from threading import Thread

import pytest

from paddock.agent import rendezvous as rendezvous_module
from paddock.agent.rendezvous import look_out
from paddock.agent.transport.wire import greeting
from paddock.core.job import Rendezvous
from paddock.local.facts.addresses import UnknownNameError

AMONG = ("no.such.host.invalid", "127.0.0.3", "127.0.0.2")


def answer(server: socket.socket, line: bytes) -> None:
    """Say one line to whoever comes, once."""
    guest, _ = server.accept()
    with guest:
        guest.sendall(line)


@pytest.mark.parametrize(
    ("line", "is_ours"),
    [
        (greeting("job-7", "n" * 32, has_key=True), True),
        (greeting("job-8", "n" * 32, has_key=False), False),
        (b"SSH-2.0-OpenSSH\r\n", False),
        (b"[]\n", False),
        (b"", False),
    ],
)
def test_the_coordinator_of_this_job_is_told_from_others(
    monkeypatch: pytest.MonkeyPatch, line: bytes, is_ours: bool
) -> None:
    """Another job, or another program, may have that port on one of the hosts."""
    monkeypatch.setattr(rendezvous_module, "guess_address", lambda: "192.0.2.9")
    with closing(socket.create_server(("127.0.0.2", 0))) as server:
        rendezvous = Rendezvous("tcp", port=server.getsockname()[1], among=AMONG, node_rank=1)
        there = Thread(target=answer, args=(server, line))
        there.start()
        if is_ours:
            assert look_out(rendezvous, "job-7") == ["192.0.2.9"]  # as the others know this host
        else:
            with pytest.raises(UnknownNameError, match="node 0 is not yet at port") as caught:
                look_out(rendezvous, "job-7")
            assert caught.value.is_passing
        there.join()
