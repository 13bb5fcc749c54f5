"""Server 0 hosts services besides tables: by name, and trainers ask them over the same port.

A service remembers by notes: JSON by key, in the server's log, snapshots and replica, and in
checkpoints, in one cut with the positions of the trainers. What it knows besides may be lost at
any time. It learns from the server who is gone for good.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from paddock.ps.server.snapshot_view import JOB, LOADED
from paddock.ps.strategies import CLOCKED
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Op
from paddock.ps.wire.handshake import Hello

if TYPE_CHECKING:
    from paddock.ps.server.serve import Server

OF_TRAINERS = ("control", "pull", "push")
RETIRED = "retired"  # the session nonce of an incarnation that no process has


class HostedService(Protocol):
    """Answers questions, one at a time."""

    def answer(
        self, who: tuple[int, int] | None, question: Mapping[str, Any], desk: ServiceContext
    ) -> dict[str, Any]:
        """who: (trainer, incarnation), None for an admin, who only looks. Raises PaddockError."""


NO_SERVICES: Mapping[str, HostedService] = MappingProxyType({})
KEY_LENGTH_MAX, VALUE_BYTES_MAX, KEYS_MAX = 200, 1 << 20, 100_000


class KeyValueService:
    """JSON values by key: `Client.kv_set` and `kv_get`."""

    def answer(
        self, who: tuple[int, int] | None, question: Mapping[str, Any], desk: ServiceContext
    ) -> dict[str, Any]:
        """{"get": [keys]} -> {"values": {key: value}} of those that are set; {"set": {key: value}}
        remembers, null forgets. Raises RequestError.
        """
        changes, keys = question.get("set", {}), question.get("get", [])
        is_right = isinstance(changes, dict) and isinstance(keys, list)
        if not is_right or not all(isinstance(key, str) for key in keys) or (changes and not who):
            raise RequestError("usage", f"no request to the key-value store: {str(question)[:200]}")
        notes = desk.notes
        for key, value in changes.items():
            size = len(json.dumps(value))
            if not 0 < len(key) <= KEY_LENGTH_MAX or size > VALUE_BYTES_MAX:
                raise RequestError(
                    "usage",
                    f"key {key[:KEY_LENGTH_MAX]!r} of {len(key)} characters, value of {size} bytes",
                    hint=f"keys of 1 to {KEY_LENGTH_MAX} characters, values up to "
                    f"{VALUE_BYTES_MAX >> 20} MiB of JSON; what is larger is a table",
                )
        if len(notes.keys() | changes.keys()) > KEYS_MAX:
            raise RequestError(
                "memory", f"more than {KEYS_MAX} keys", hint="kv_set(key, None) forgets"
            )
        if changes:
            desk.keep(changes)
        return {"values": {key: notes[key] for key in keys if key in notes}}


BUILT_IN: Mapping[str, HostedService] = MappingProxyType(
    dict.fromkeys(("kv", JOB), KeyValueService())
)


class Services:
    """The services of one server, and a desk for each."""

    def __init__(self, server: Server, services: Mapping[str, HostedService]) -> None:
        self._server = server
        self._services = {**BUILT_IN, **services}
        self._lock = threading.Lock()
        # By trainer, since when its connection is missed. Counted anew after a restart.
        self.missed: dict[int, float] = {}

    def answer(self, hello: Hello, question: dict[str, Any]) -> dict[str, Any]:
        """The service's answer. Raises RequestError, PaddockError."""
        self._server.group()  # Refuses on servers other than 0.
        name = str(question.get("service"))
        service = self._services.get(name)
        if service is None:
            raise RequestError(
                "usage",
                f"this server hosts no service {name!r}",
                hint="start it as `paddock pserver`, of the same version as the trainers'",
            )
        who = None if hello.purpose == "admin" else (hello.trainer, hello.incarnation)
        with self._lock:
            return service.answer(
                who, question, ServiceContext(self._server, name + "/", self.missed)
            )


class ServiceContext:
    """The server as a service sees it, as long as it answers.

    notes: its own, by key. serial: grows with every `keep`, and does not go back when a checkpoint
    is loaded. past: the checkpoint that was loaded last, "" for none.
    """

    def __init__(self, server: Server, prefix: str, missed: dict[int, float]) -> None:
        self._server = server
        self._prefix = prefix
        self._missed = missed
        self.say = server.say

    @property
    def notes(self) -> Mapping[str, Any]:
        start = len(self._prefix)
        notes = self._server.store.kv
        return {key[start:]: v for key, v in notes.items() if key.startswith(self._prefix)}

    @property
    def serial(self) -> int:
        return self._server.engine.lsn

    @property
    def past(self) -> str:
        return str(self._server.store.kv.get(LOADED, ""))

    def keep(self, changes: Mapping[str, Any]) -> None:
        """Remember these; None forgets. On return they are as safe as an acknowledged push."""
        noted = {self._prefix + key: value for key, value in changes.items()}
        self._server.engine.record(Op.KV, {"set": noted})

    def is_gone(self, trainer: int) -> bool:
        """True when no push of the trainer's incarnations so far will be carried out any more: it
        left, was expelled, or is away for --trainer-timeout.

        Of the latter the coordinator decides, where trainers wait for each other's steps. Else the
        trainer is fenced here, as by a newer incarnation: so that it cannot come back and push
        what others do by now.
        """
        server, rules = self._server, self._server.store.rules
        assert server.coordinator is not None
        is_member, has_ended = server.coordinator.standing(trainer)
        is_clocked = rules is not None and rules.strategy in CLOCKED
        is_missed, now, seconds = False, time.monotonic(), server.options.trainer_timeout
        if any(number == trainer for number, _ in server.connected()):
            self._missed.pop(trainer, None)
        else:
            is_missed = now - self._missed.setdefault(trainer, now) >= seconds > 0
        if not has_ended and (not is_missed or (is_member and is_clocked)):
            return False
        newest, nonce = server.store.incarnations.get(trainer, (0, ""))
        if not is_clocked and nonce != RETIRED and trainer not in server.store.closed:
            began = {"nonce": RETIRED}
            server.engine.record(Op.FENCE, began, trainer=trainer, incarnation=newest + 1)
        return True


__all__ = ["NO_SERVICES", "HostedService", "ServiceContext", "Services"]
