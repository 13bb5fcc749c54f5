"""The relay: this user's one connection to a Ray cluster, kept for a minute after its last use.

    python -m paddock.backends.ray.relay CLUSTER SOCKET

Connecting takes Ray one to two seconds, and a command of ours 0.1: as with ssh's master connection
(ControlPersist), the next commands find it there. A request is a line of JSON:

op        answer
--------  -------------------------------------------------------------------------
nodes     the nodes that are alive
reserve   a line while it waits; then the nodes of a placement group, with a holder on each;
          a line {"op": "keep"} leaves them to the job, the end of the connection removes them
connect   then what a command on a node prints, in frames (client.py), and our side is its input
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from paddock.backends.ray import actor as actors
from paddock.backends.ray.client import CHUNK_BYTES, HEAD_BYTES, HELLO_SECONDS, socket_path
from paddock.backends.ray.plan import ADDRESS_HINT, cluster_text, is_address, lack, resources_text
from paddock.errors import PaddockError, UsageError, extra_hint

NAMESPACE = "paddock"
IDLE_SECONDS = 60.0
CONNECT_SECONDS = 10
ROUND_SECONDS = 1.0
NAME_SECONDS = 3.0  # of a holder whose job has ended
VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
Row = dict[str, Any]


class Relay:
    """The connection, and what it keeps: an actor on each node that was asked something."""

    def __init__(self, cluster: str) -> None:
        self.ray = connect(cluster)
        self.cluster = cluster
        if not cluster.startswith("ray://"):
            self.cluster = self.ray.get_runtime_context().gcs_address
        self.ray.cloudpickle.register_pickle_by_value(actors)
        self._kind = self.ray.remote(actors.NodeActor)
        self._readers: dict[str, Any] = {}
        self._lock = threading.Lock()

    def answer(self, connection: socket.socket) -> None:
        """Answer the request of a connection, until one side ends it."""
        file = connection.makefile("rb")
        with contextlib.suppress(OSError):
            try:
                row = json.loads(file.readline())
                operation = {"nodes": self._tell_nodes, "reserve": self._reserve,
                             "connect": self._connect}[row["op"]]  # fmt: skip
                operation(row, connection, file)
            except PaddockError as error:
                say(connection, error=error.message, hint=error.hint)
            except (self.ray.exceptions.RayError, ValueError) as error:
                say(connection, error=f"Ray: {_first_line(error)}", hint="ray status")

    # -------------------------------------------------------------------- nodes

    def _tell_nodes(self, _row: Row, connection: socket.socket, _file: BinaryIO) -> None:
        say(connection, cluster=self.cluster, nodes=self.nodes())

    def nodes(self) -> list[Row]:
        """Return the nodes that are alive, those of one host with their ids."""
        alive = [node for node in self.ray.nodes() if node["Alive"]]
        hosts = [node["NodeManagerHostname"] for node in alive]
        return [
            {
                "node": node["NodeID"],
                "name": host if hosts.count(host) == 1 else f"{host}.{node['NodeID'][:6]}",
                "address": node["NodeManagerAddress"],
                "resources": node["Resources"],
                "holder": "",
                "python": "",
            }
            for node, host in zip(alive, hosts, strict=True)
        ]

    # -------------------------------------------------------------------- reserve

    def _reserve(self, row: Row, connection: socket.socket, file: BinaryIO) -> None:
        """Make a placement group, with an actor in each bundle that holds its resources."""
        count, bundle, since = int(row["count"]), row["bundle"], time.monotonic()
        self._lack(row, since)
        lifetime = "detached" if row["is_detached"] else None
        group = self.ray.util.placement_group(
            [bundle] * count, strategy=row["strategy"], name=row["id"], lifetime=lifetime
        )
        is_kept = False
        try:
            holders = self._holders(row, group, lifetime)
            while not group.wait(ROUND_SECONDS):
                why = self._lack(row, since) or self._wanted(bundle, count)
                say(connection, waiting=f"waiting for Ray: {why}")
                if _has_ended(connection):
                    return
            given = self.ray.util.placement_group_table(group)["bundles_to_node_id"]
            nodes = {node["node"]: node for node in self.nodes()}
            pythons = self._hellos(holders, [nodes[given[index]]["name"] for index in range(count)])
            found = [
                {**nodes[given[index]], "holder": holder, "python": python}
                for index, (holder, python) in enumerate(zip(holders, pythons, strict=True))
            ]
            say(connection, cluster=self.cluster, nodes=found)
            seconds = actors.UNKEPT_SECONDS / 6
            while row["is_detached"] and not select.select([connection], [], [], seconds)[0]:
                for holder in holders.values():
                    holder.hello.remote()
            if line := file.readline():
                requests = json.loads(line)["requests"]
                self.ray.get([
                    holder.keep.remote(request, [n for n in holders if n != name], row["id"])
                    for (name, holder), request in zip(holders.items(), requests, strict=True)
                ])  # fmt: skip
                is_kept = True
                say(connection, kept=True)
        finally:
            if not is_kept:
                self.ray.util.remove_placement_group(group)

    def _lack(self, row: Row, since: float) -> str:
        """Return why the cluster, as it is, can never give it. Raises UsageError: for too long."""
        why = lack(row["bundle"], int(row["count"]), row["strategy"], self.nodes())
        if why and time.monotonic() >= since + row["waits"]:
            hint = "ask for less, or, of a cluster that grows, wait = SECONDS in the site"
            raise UsageError(why, hint=hint)
        return why

    def _hellos(self, holders: Mapping[str, Any], names: Sequence[str]) -> list[str]:
        """Return the Python of each holder's node. Raises UsageError: a node starts no actor."""
        asked = [holder.hello.remote() for holder in holders.values()]
        done, _ = self.ray.wait(asked, num_returns=len(asked), timeout=HELLO_SECONDS)
        silent = [name for name, ref in zip(names, asked, strict=True) if ref not in done]
        if silent:
            what = f"Ray has started no actor on {', '.join(silent)} for {HELLO_SECONDS} s"
            raise UsageError(what, hint="ray status; and raylet.out there, in /tmp/ray/*/logs")
        found: list[str] = self.ray.get(asked)
        return found

    def _holders(self, row: Row, group: Any, lifetime: str | None) -> dict[str, Any]:
        """Return the actors by name; the first has the job's name. Raises UsageError: in use."""
        found: dict[str, Any] = {}
        for index in range(int(row["count"])):
            is_named = row["name"] and index == 0
            name = f"name {row['name']}" if is_named else f"{row['id']}/{index}"
            bundle = dict(row["bundle"])
            options = {
                "name": name,
                "lifetime": lifetime,
                "num_cpus": bundle.pop("CPU"),
                "num_gpus": bundle.pop("GPU", 0),
                "resources": bundle,
                "scheduling_strategy": self.ray.util.scheduling_strategies.
                    PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
            }  # fmt: skip
            deadline = time.monotonic() + NAME_SECONDS
            while True:
                try:
                    kept = (row["id"],) if row["is_detached"] else ()
                    found[name] = self._kind.options(**options).remote(*kept)
                    break
                except ValueError as error:
                    if self._is_held(name) or time.monotonic() > deadline:
                        raise UsageError(
                            f"the name '{row['name']}' is in use on this Ray cluster",
                            hint="choose another with --name, or stop it first with --replace",
                        ) from error  # fmt: skip
                # sleep: no event tells that a name is free
                time.sleep(0.1)
        return found

    def _is_held(self, name: str) -> bool:
        """Return True if the job of a holder goes on, or waits for its resources."""
        try:
            return not self.ray.get(self.ray.get_actor(name).is_over.remote(), timeout=2)
        except self.ray.exceptions.GetTimeoutError:
            return True
        except (ValueError, self.ray.exceptions.RayError):
            return False

    def _wanted(self, bundle: Mapping[str, float], count: int) -> str:
        free = self.ray.available_resources()
        shown = resources_text({name: free.get(name, 0.0) for name in bundle})
        return f"{count} x {resources_text(bundle)}; free now in all: {shown}"

    # -------------------------------------------------------------------- connect

    def _connect(self, row: Row, connection: socket.socket, file: BinaryIO) -> None:
        try:
            try:
                actor, number = self._opened(row)
            except self.ray.exceptions.RayActorError:
                if row["holder"]:
                    raise
                self._readers.clear()  # one was killed; those in use stay
                actor, number = self._opened(row)
        except self.ray.exceptions.GetTimeoutError as error:
            what = f"Ray's node has not answered for {row['seconds']} s"
            raise UsageError(what, hint="ray status tells which nodes Ray has") from error
        say(connection, ok=True)
        feeder = threading.Thread(target=self._feed, args=(actor, number, file), daemon=True)
        feeder.start()
        try:
            while (data := self.ray.get(actor.read.remote(number))) != b"":
                for at in range(0, len(data or b""), CHUNK_BYTES):
                    part = data[at : at + CHUNK_BYTES]
                    connection.sendall(len(part).to_bytes(HEAD_BYTES, "big") + part)
            code, errors = self.ray.get(actor.close.remote(number))
        except self.ray.exceptions.RayError as error:
            code, errors = 2, f"Ray: {_first_line(error)}\tray status"
        connection.sendall(bytes(HEAD_BYTES))
        say(connection, code=code, errors=errors)

    def _opened(self, row: Row) -> tuple[Any, int]:
        """Start the command of a row; return the actor and its session."""
        actor = self._actor(row)
        return actor, self.ray.get(actor.open.remote(row["command"]), timeout=row["seconds"])

    def _feed(self, actor: Any, number: int, file: BinaryIO) -> None:
        with contextlib.suppress(OSError, ValueError, self.ray.exceptions.RayError):
            while data := file.raw.read(CHUNK_BYTES):  # type: ignore[attr-defined]  # what came
                self.ray.get(actor.write.remote(number, data))
            self.ray.get(actor.close.remote(number))

    def _actor(self, row: Row) -> Any:
        """Return the holder on a node, else an actor of ours there. Raises UsageError."""
        if row["holder"]:
            return self.ray.get_actor(row["holder"])
        nodes = self.nodes()
        for name in ("node", "name"):  # a Ray that was started anew has other ids
            if found := [node["node"] for node in nodes if node[name] == row[name]]:
                break
        else:
            raise UsageError(f"Ray has lost the node {row['name']}", hint="ray status")
        with self._lock:
            if found[0] not in self._readers:
                kinds = self.ray.util.scheduling_strategies
                there = kinds.NodeAffinitySchedulingStrategy(found[0], soft=False)
                options = {"num_cpus": 0, "scheduling_strategy": there}
                self._readers[found[0]] = self._kind.options(**options).remote()
            return self._readers[found[0]]


def connect(cluster: str) -> Any:
    """Return Ray, connected. Raises UsageError: it is not installed, not there, or another one."""
    try:
        import ray
    except ImportError as error:
        hint = f"{sys.executable} -m {extra_hint('ray')}"
        raise UsageError("there is no ray in the Python of paddock", hint=hint) from error
    address = os.environ.get("RAY_ADDRESS", "") if cluster == "auto" else cluster
    if address and not is_address(address):
        raise UsageError(f"RAY_ADDRESS = {address!r}", hint=ADDRESS_HINT)
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():  # Ray itself would try for a minute
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(
            address=cluster, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR,
            configure_logging=False,
        )  # fmt: skip
    except (RuntimeError, ValueError, OSError, ImportError) as error:
        raise refusal(cluster, str(error)) from error
    return ray


def refusal(cluster: str, said: str) -> UsageError:
    """Return the error for a cluster that refuses us, from what Ray says.

    >>> print(refusal("auto", "Version mismatch: The cluster was started with:\\n    Ray: 2.60.0\\n"
    ...     "    Python: 3.12.1\\nThis process on 10.0.0.9 was started with:\\n    Ray: 2.60.0\\n"
    ...     "    Python: 3.11.7\\n").message)
    the Ray cluster runs Ray 2.60.0 on Python 3.12.1, and paddock has Ray 2.60.0 on Python 3.11.7
    """
    if len(found := VERSIONS.findall(said)) >= 2:
        (ray, python), (our_ray, our_python) = found[:2]
        return UsageError(
            f"the Ray cluster runs Ray {ray} on Python {python}, and paddock has Ray {our_ray} on"
            f" Python {our_python}",
            hint=f"both must be the same: install paddock in a Python {python} with ray=={ray}",
        )
    return UsageError(
        f"{cluster_text(cluster)} cannot be reached: {_first_line(said)}",
        hint="ray status must work here; or name it: address = HOST:PORT in the site",
    )


def _first_line(said: object) -> str:
    return next((line.strip() for line in str(said).splitlines() if line.strip()), "")[:300]


def say(connection: socket.socket, **row: object) -> None:
    connection.sendall(json.dumps(row).encode() + b"\n")


def _has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def _answered(relay: Relay, path: str) -> Iterator[None]:
    """Take connections until nobody has asked for a minute; yields after each round."""
    Path(path).unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(128)
    server.settimeout(ROUND_SECONDS)
    running: list[threading.Thread] = []
    idle_since, is_last = time.monotonic(), False
    yield
    # By ray:// the head's end, or a cut of 30 s, leaves us without one; else Ray ends us.
    while (not is_last or running) and relay.ray.is_initialized():
        if time.monotonic() > idle_since + IDLE_SECONDS:
            Path(path).unlink(missing_ok=True)
            is_last = True  # whoever has come before that is still answered
        with contextlib.suppress(TimeoutError):
            connection, _ = server.accept()
            connection.settimeout(None)
            running.append(threading.Thread(target=_serve, args=(relay, connection), daemon=True))
            running[-1].start()
        running = [thread for thread in running if thread.is_alive()]
        if running:
            idle_since = time.monotonic()


def _serve(relay: Relay, connection: socket.socket) -> None:
    with connection:
        relay.answer(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # its reader has a copy


def main(argv: list[str]) -> None:
    """Connect to Ray, tell so on stdout, and serve."""
    cluster, path = argv
    told = os.dup(1)
    os.dup2(2, 1)  # Ray may print
    answer: Row = {"ok": True}
    rounds: Iterator[None] = iter(())
    try:
        relay = Relay(cluster)
        rounds = _answered(relay, path)
        next(rounds)
        if (alias := socket_path(relay.cluster)) != path:  # later commands ask by the full address
            Path(alias).unlink(missing_ok=True)
            os.symlink(path, alias)
    except PaddockError as error:
        answer = {"error": error.message, "hint": error.hint}
    os.write(told, json.dumps(answer).encode() + b"\n")
    os.close(told)
    for _ in rounds:
        pass
    os._exit(0)  # what is left of Ray's threads


if __name__ == "__main__":
    main(sys.argv[1:])
