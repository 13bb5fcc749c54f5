"""The operator process: client, controller, election, probes; how it starts and ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from paddock import __version__
from paddock.errors import UsageError
from paddock.kube import connect, http_client
from paddock.operator.names import LEASE, NAMESPACE
from paddock.operator.runtime.clock import Clock, TimeLimit, end
from paddock.operator.runtime.controller import Controller
from paddock.operator.runtime.events import Recorder
from paddock.operator.runtime.guard import GuardedClient, TokenBucket
from paddock.operator.runtime.http_server import (
    Access,
    Certificate,
    HttpServer,
    probe,
    read_address,
)
from paddock.operator.runtime.lease import LeaderElector
from paddock.operator.runtime.log import Logger
from paddock.operator.runtime.metrics import Metrics
from paddock.watch.metrics import CONTENT_TYPE, rss_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.kube.client import KubeClient
    from paddock.operator.options import OperatorOptions
    from paddock.operator.runtime.controller import Reconcile

ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
EVENTS_SECONDS_MAX = 1.0
WARNINGS_MAX = 200


class Operator:
    """An operator on a client that it does not own."""

    def __init__(
        self,
        client: KubeClient,
        options: OperatorOptions,
        reconcile: Reconcile,
        *,
        clock: Clock,
        rng: Random,
        log: Logger,
        identity: str,
    ) -> None:
        self.metrics = Metrics()
        self._options = options
        self._log = log
        self.elector: LeaderElector | None = None
        qps, bucket = options.kube_api_qps, None
        if qps > 0:
            bucket = TokenBucket(qps, options.kube_api_burst)
        # What is done whether this process leads or not.
        unfenced = GuardedClient(
            client, clock=clock, metrics=self.metrics, fence=None, rate=None, tries_max=1
        )
        self._access = Access(unfenced, clock=clock, log=log)
        if options.leader_elect:
            self.elector = LeaderElector(
                unfenced, clock=clock, rng=rng, log=log, identity=identity,
                namespace=options.leader_election_namespace or own_namespace(),
                name=options.leader_election_id or LEASE,
            )  # fmt: skip
        fence = self.elector.fence if self.elector else None
        guarded = GuardedClient(client, clock=clock, metrics=self.metrics, fence=fence, rate=bucket)
        self.recorder = Recorder(
            guarded, clock=clock, rng=rng, log=log, metrics=self.metrics, instance=identity
        )
        self.controller = Controller(
            guarded, reconcile, options.settings,
            recorder=self.recorder, clock=clock, rng=rng, log=log, metrics=self.metrics,
            namespaces=options.namespaces, workers=options.workers,
            is_candidate=options.leader_elect,
        )  # fmt: skip
        gauge = self.metrics.gauge
        gauge(
            "paddock_is_leader", "1 for the operator that works.",
            lambda: {(): float(self.elector is None or self.elector.fence.is_open)},
        )  # fmt: skip
        gauge("process_resident_memory_bytes", "Memory in bytes.", lambda: {(): rss_bytes()})

    async def run(self, stop: asyncio.Event) -> None:
        """Work until stopped; then finish what is being done and give the lease back."""
        servers = await self._serve()
        self.controller.caches.start()
        recording = asyncio.create_task(self.recorder.run())
        try:
            if self.elector is not None:
                await self.elector.run(lambda: self._work(stop), stop)
            else:
                await self._work(stop)
        finally:
            await self.controller.stop()
            await end(recording)
            for server in servers:
                await server.stop()

    async def _work(self, stop: asyncio.Event) -> None:
        await self.controller.work(stop)
        try:
            async with TimeLimit(EVENTS_SECONDS_MAX):
                await self.recorder.flush()
        except asyncio.TimeoutError:
            self._log.warning("some events were not written")

    async def _serve(self) -> list[HttpServer]:
        """Listen where the flags say; one server when both say the same."""
        metrics = {"/metrics": lambda: (200, CONTENT_TYPE, self.metrics.text())}
        probes = {
            "/healthz": probe(self.controller.hung),
            "/readyz": probe(self.controller.caches.unsynced),
        }
        options = self._options
        certificate = None
        if options.metrics_cert_path:
            certificate = Certificate(options.metrics_cert_path, "--metrics-cert-path")
        allow = self._access.check if certificate else None
        flag, of_probes = "--metrics-bind-address", "--health-probe-bind-address"
        places = {flag: options.metrics_bind_address, of_probes: options.health_probe_bind_address}
        wanted = {flag: HttpServer(metrics, allow=allow, certificate=certificate)}
        if places[flag] != places[of_probes]:
            wanted[of_probes] = HttpServer(probes)
        elif certificate and read_address(places[flag], flag):
            raise UsageError(
                f"--metrics-cert-path: '{places[flag]}' serves the probes as well",
                hint=f"give {flag} another port: kubelets have no token",
            )
        else:
            wanted = {flag: HttpServer(metrics | probes)}
        servers = []
        for flag, server in wanted.items():
            address = read_address(places[flag], flag)
            if address is not None:
                await server.start(*address, flag)
                servers.append(server)
                self._log.info("listening", port=server.port, paths=",".join(server.paths))
        return servers


def run(options: OperatorOptions, reconcile: Reconcile) -> int:
    """Work on the cluster that the options name until SIGTERM or SIGINT; a second one ends at once.

    Returns the exit code. Raises UsageError.
    """

    async def work(stop: asyncio.Event) -> None:
        clock = Clock()
        log = Logger(_write, clock, level=options.log_level, form=options.log_format)
        for line in options.warnings:
            log.warning(line)
        config = connect.find_config(options.kubeconfig, options.context)
        client = http_client.open_client(config, http_client.HttpOptions(warn=_warner(log)))
        identity = f"{socket.gethostname()}_{os.urandom(4).hex()}"
        log.info(
            "starting", version=__version__, cluster=config.cluster.server, identity=identity,
            namespaces=",".join(options.namespaces) or "all",
        )  # fmt: skip
        try:
            operator = Operator(
                client, options, reconcile, clock=clock, rng=Random(), log=log, identity=identity
            )
            await operator.run(stop)
        finally:
            await client.close()
        log.info("ended")

    async def until_signal() -> int:
        stop = asyncio.Event()
        working = asyncio.ensure_future(work(stop))

        def ask() -> None:
            if stop.is_set():
                working.cancel()
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ask)
        try:
            await working
        except asyncio.CancelledError:
            return 1  # Hurried: the lease was not given back.
        return 0

    return asyncio.run(until_signal())


def own_namespace() -> str:
    """The namespace of this pod, else the one that the operator is usually installed in."""
    try:
        return ACCOUNT_NAMESPACE.read_text("utf-8").strip() or NAMESPACE
    except OSError:
        return NAMESPACE


def _warner(log: Logger) -> Callable[[str], None]:
    """Shows each warning of the API server once."""
    seen: set[str] = set()

    def warn(text: str) -> None:
        if text not in seen and len(seen) < WARNINGS_MAX:
            seen.add(text)
            log.warning("the API server warns", text=text)

    return warn


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
