"""The first frames of a connection: who speaks, to whom, and do both know the token.

Pure. HELLO carries the trainer's facts and a nonce; the answer carries the server's facts, and,
where a token is set, a challenge and the server's own proof; PROOF is the trainer's.
HMAC-SHA256 (RFC 2104) over a label, so that one side's proof cannot be played back to the other.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import asdict, dataclass
from typing import Any

from paddock.ps.protocol.refusals import Refusal

NONCE_BYTES = 16
_TYPES: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": (int, float)}


@dataclass(frozen=True, slots=True)
class Hello:
    """What a client says first. purpose: pull, push, control, admin or replica."""

    version: str
    job: str
    trainer: int
    incarnation: int
    purpose: str
    nonce: str  # hex


@dataclass(frozen=True, slots=True)
class Welcome:
    """What a server answers.

    server_id: made with its (empty) state; another id means that the state is gone.
    unix: name of an abstract Unix socket for trainers of the same machine, "" for none.
    challenge, proof: empty where no token is set. newest: the highest number of this trainer's
    pushes that the server has.
    """

    version: str
    job: str
    server: int
    servers: int
    server_id: str
    epoch: int
    role: str
    unix: str = ""
    challenge: str = ""
    proof: str = ""
    trainer_timeout_seconds: float = 60.0
    newest: int = 0


def proof_of(token: bytes, side: str, nonce: str, challenge: str) -> str:
    """The proof that `side` ("server" or "trainer") knows the token, as hex.

    >>> proof_of(b"t", "server", "00", "01") == proof_of(b"t", "trainer", "00", "01")
    False
    """
    said = f"paddock-ps-1 {side} {nonce} {challenge}".encode()
    return hmac.new(token, said, "sha256").hexdigest()


def same(a: str, b: str) -> bool:
    """Equality in constant time."""
    return hmac.compare_digest(a.encode(), b.encode())


def to_body(value: Hello | Welcome) -> bytes:
    """JSON of a handshake value."""
    return json.dumps(asdict(value)).encode()


def hello_from(body: bytes | bytearray | memoryview) -> Hello:
    """The Hello in a body. Raises Refusal when it is not one."""
    return Hello(**_fields(body, Hello))


def welcome_from(body: bytes | bytearray | memoryview) -> Welcome:
    """The Welcome in a body. Raises Refusal when it is not one."""
    return Welcome(**_fields(body, Welcome))


def _fields(
    body: bytes | bytearray | memoryview, cls: type[Hello] | type[Welcome]
) -> dict[str, Any]:
    try:
        data = json.loads(bytes(body))
        found = {name: data[name] for name in cls.__dataclass_fields__}
        for name, field in cls.__dataclass_fields__.items():
            wanted = _TYPES[str(field.type)]
            if not isinstance(found[name], wanted) or isinstance(found[name], bool):
                raise TypeError(f"{name} is {found[name]!r:.40}")
        return found
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refusal(
            "usage",
            f"the other side's greeting is not one this version understands ({error})",
            hint="install the same paddock on trainers and servers",
        ) from error
