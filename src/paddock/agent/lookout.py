"""Which of several hosts node 0 is on, where an allocation names all and does not say.

Asked one after the other at the port they have agreed upon: the one whose greeting names this job.
Runs in a thread (meet.py), again and again.
"""

from __future__ import annotations

import json
import socket

from paddock.agent.wire import GREETING_LIMIT_BYTES
from paddock.local.addresses import UnknownNameError, addresses_of, guess_address, is_loopback
from paddock.local.credentials import client_tls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.job import Rendezvous

CONNECT_SECONDS = 1.0


def look_out(rendezvous: Rendezvous, job_id: str) -> list[str]:
    """The address of the coordinator of that job. Raises UnknownNameError when none has it yet.

    One on this host is known by the address that the other hosts see: ours is made from it.
    """
    tls = client_tls(rendezvous)
    for host in rendezvous.among:
        for address in addresses_of(host):
            try:
                sock = socket.create_connection((address, rendezvous.port), CONNECT_SECONDS)
                with tls.wrap_socket(sock) if tls is not None else sock as opened:
                    line = opened.makefile("rb").readline(GREETING_LIMIT_BYTES)
                if json.loads(line)["job"] == job_id:
                    return [guess_address() if is_loopback(address) else address]
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not there, not yet, or another program
    names = ", ".join(rendezvous.among[:8]) + (", ..." if len(rendezvous.among) > 8 else "")
    nobody = UnknownNameError(
        f"node 0 is not yet at port {rendezvous.port} of {names}",
        hint="start the same command on all of them, or add --master HOST:PORT",
    )
    nobody.is_passing = True
    raise nobody
