"""A client with a server of its own in this process: for tests and trials, nothing to start.

with ps.local() as client:
    layer = ps.torch.Embedding(client, "deep", 16)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from paddock.ps.client.client import Client
from paddock.ps.server.engine import Engine
from paddock.ps.server.options import read_options
from paddock.ps.server.serve import Server
from paddock.ps.server.services import NO_SERVICES, HostedService
from paddock.ps.server.store import Store


@contextmanager
def local(
    strategy: str = "sync", *, services: Mapping[str, HostedService] = NO_SERVICES, **options: Any
) -> Iterator[Client]:
    """Trainer 0 of 1 with a server in this process; its tables are gone with the block.

    The server is the real one, so the results have its bits. It listens on a free port of the
    loopback, to which this process alone knows the job's name.

    Args:
        strategy: As Client's.
        services: What the server hosts besides, by name.
        options: Further ones of Client.
    """
    settings = read_options(["--port=0", "--job=local"], {})
    server = Server(settings, Engine(Store(0, 1), None, "memory"), services=services)
    server.start()
    try:
        with Client(
            f"127.0.0.1:{server.port}",
            strategy=strategy,
            trainer=0,
            trainers=1,
            job="local",
            token_file="",
            tls_ca="",
            **options,
        ) as client:
            yield client
    finally:
        server.stop()
