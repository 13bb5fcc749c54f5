"""What a pair of servers and their witness say to each other, as JSON and as frames. Pure.

Over the replica's connection to its primary, all of Op.FOLLOW:

    replica  JSON Follow                                          once, first
    primary  JSON {"start": Start} or {"refuse": Refuse}          the answer
    primary  part=FILE, a JSON name, and FILE_BYTES frames        when Start.is_reset: its snapshot
    primary  part=RECORD, step epoch, sequence position           and the record's own frame
    primary  part=IDLE                                            when it has nothing to say
    replica  step epoch, sequence end                             Ack: of each record, and of IDLE
    replica  flag ERROR, step epoch                               Refuse; the connection ends
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from paddock.ps.consistency.lease import Ask, Register, Reply, Request
from paddock.ps.consistency.replication import Follow, Refuse, Start
from paddock.ps.protocol.frames import Buffer, Flag, Header, Op
from paddock.ps.protocol.refusals import Refusal

IDLE, RECORD, FILE, FILE_BYTES, FILES_END = range(5)
ERROR = int(Flag.ERROR)
NAME_LENGTH_MAX = 200


def request_json(group: str, request: Request) -> dict[str, Any]:
    """The order to a witness. group: the name of the pair."""
    return {"do": "lease", "group": group, **asdict(request), "ask": request.ask.value}


def request_from(order: dict[str, Any]) -> tuple[str, Request]:
    """(group, request) of an order. Raises Refusal when it is none."""
    try:
        group = str(order["group"])
        if not 0 < len(group) <= NAME_LENGTH_MAX:
            raise ValueError(f"a group of {len(group)} characters")
        return group, Request(
            Ask(order["ask"]),
            int(order["server"]),
            int(order["epoch"]),
            int(order["version"]),
            float(order["sent"]),
            int(order["peer"]),
            str(order["endpoint"]),
            bool(order["is_first"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refusal("usage", f"this is no request for a lease: {error!r}") from error


def reply_json(reply: Reply) -> dict[str, Any]:
    """The witness's answer."""
    return {
        "ask": reply.ask.value,
        "granted": reply.granted,
        "sent": reply.sent,
        "register": reply.register.to_json(),
    }


def reply_from(data: dict[str, Any]) -> Reply:
    """What reply_json gave; the register's expiry, on another clock, is not in it.

    >>> reply = Reply(Ask.TAKE, True, 0.5, Register(1, 1, 7, "a:1", 9.0, (7,)))
    >>> reply_from(reply_json(reply)).register.in_sync
    (7,)
    """
    told = data["register"]
    register = Register(
        int(told["version"]),
        int(told["epoch"]),
        int(told["holder"]),
        str(told["endpoint"]),
        in_sync=tuple(int(server) for server in told["in_sync"]),
    )
    return Reply(Ask(data["ask"]), bool(data["granted"]), float(data["sent"]), register)


def follow_from(body: Buffer) -> Follow:
    """The Follow in a body. Raises Refusal when it is none."""
    try:
        data = json.loads(bytes(body))
        return Follow(**{**data, "history": _history(data["history"])})
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refusal("usage", f"this is no question of a replica: {error!r}") from error


def to_body(message: Follow | Start | Refuse) -> bytes:
    """JSON of a message.

    >>> follow_from(to_body(Follow(7, 1, 2, 3, ((1, 0), (2, 3))))).history
    ((1, 0), (2, 3))
    """
    if isinstance(message, Follow):
        return json.dumps(asdict(message)).encode()
    name = "start" if isinstance(message, Start) else "refuse"
    return json.dumps({name: asdict(message)}).encode()


def answer_from(body: Buffer) -> Start | Refuse:
    """What the primary answered to Follow."""
    data = json.loads(bytes(body))
    if "refuse" in data:
        return Refuse(**data["refuse"])
    return Start(**{**data["start"], "history": _history(data["start"]["history"])})


def _history(pairs: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(epoch), int(first)) for epoch, first in pairs)


def begins(header: Header, body: Buffer) -> int:
    """The epoch that a record begins; 0 when it begins none."""
    return int(json.loads(bytes(body))["epoch"]) if header.op == Op.EPOCH else 0
