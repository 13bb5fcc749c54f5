"""The first frames of a connection: who speaks, to whom, and do both know the token.

Pure. HELLO carries the trainer's facts and a nonce; the answer carries the server's facts, and,
where a token is set, a challenge and the server's own proof; PROOF is the trainer's.
HMAC-SHA256 (RFC 2104) over a label, so that one side's proof cannot be played back to the other.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TypeVar

from paddock.ps.wire.values import body_from
from paddock.ps.xxh3 import Buffer

NONCE_BYTES = 16


@dataclass(frozen=True, slots=True)
class Hello:
    """A client's first frame. purpose: pull, push, control, admin or replica."""

    version: str
    job: str
    trainer: int
    incarnation: int
    purpose: str
    nonce: str  # hex


@dataclass(frozen=True, slots=True)
class Welcome:
    """A server's answer to Hello.

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
    term: int
    role: str
    unix: str = ""
    challenge: str = ""
    proof: str = ""
    newest: int = 0


G = TypeVar("G", Hello, Welcome)


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


def greeting_from(kind: type[G], body: Buffer) -> G:
    """The Hello or Welcome in a body. Raises RequestError when it is not one."""
    hint = "install the same paddock on trainers and servers"
    greeting: G = body_from(kind, body, "greeting that this version understands", hint)
    return greeting
