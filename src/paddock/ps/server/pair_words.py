"""What a pair of servers and their witness say to each other, as JSON and as frames. Pure.

Over the replica's connection to its primary, all of Op.FOLLOW:

    replica  JSON Follow                                          once, first
    primary  JSON Start or Refuse                                 the answer
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

from paddock.ps.consistency.lease import Request
from paddock.ps.consistency.replication import Refuse, Start
from paddock.ps.protocol.frames import Buffer, Flag, Header, Op
from paddock.ps.protocol.refusals import Refusal
from paddock.ps.protocol.values import body_from, value_from

IDLE, RECORD, FILE, FILE_BYTES, FILES_END = range(5)
ERROR = int(Flag.ERROR)
NAME_LENGTH_MAX = 200


def request_body(group: str, request: Request) -> bytes:
    """The order to a witness. group: the name of the pair."""
    return json.dumps({"do": "lease", "group": group, **asdict(request)}).encode()


def request_from(order: dict[str, Any]) -> tuple[str, Request]:
    """(group, request) of an order. Raises Refusal when it is none."""
    group = order.get("group")
    try:
        if not isinstance(group, str) or not 0 < len(group) <= NAME_LENGTH_MAX:
            raise ValueError(f"group is {group!r:.40}")
        return group, value_from(Request, order)
    except ValueError as error:
        raise Refusal("usage", f"this is no request for a lease: {error}") from error


def answer_from(body: Buffer) -> Start | Refuse:
    """What the primary answered to Follow. Raises Refusal when it is no answer."""
    kind = Start if b'"common"' in bytes(body) else Refuse
    answer: Start | Refuse = body_from(kind, body, "answer of a primary")
    return answer


def begins(header: Header, body: Buffer) -> int:
    """The epoch that a record begins; 0 when it begins none."""
    return int(json.loads(bytes(body))["epoch"]) if header.op == Op.EPOCH else 0
