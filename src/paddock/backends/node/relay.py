"""Copies contents from host to host over TCP (giver to taker). Standard library only.

    giver                                       taker
    nonce (32 bytes)                        ->
                                            <-  nonce, proof
    proof                                   ->
                                            <-  how many (8 bytes), hashes
    contents, as for the store (store.py) ->

Both prove with HMAC-SHA256 over both nonces that they have the key of this submission, which the
submitter gave them over its own connections. So no other process gets a file, and only contents
that were offered are given; the taker checks every content by its hash, whoever sends it. Nothing
is encrypted: a listener on the hosts' network can read the files.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import threading
from contextlib import suppress

from paddock.backends.node.store import (
    CHUNK_BYTES,
    ContentStore,
    Receiver,
    frame_head,
    system_errors,
)
from paddock.errors import PaddockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

KEY_BYTES = NONCE_BYTES = PROOF_BYTES = 32
SILENCE_SECONDS = 10.0  # of the other side, until it is given up
TAKERS_MAX = 16  # at a time

_GIVERS: dict[str, Giver] = {}


def offer(store: ContentStore, key: bytes, hashes: Iterable[str], address: str) -> int:
    """Give those contents to any taker with the key, until withdraw(). Returns the port."""
    withdraw(store)
    with system_errors(address):
        giver = _GIVERS[store.folder] = Giver(store, key, frozenset(hashes), address)
    return giver.port


def withdraw(store: ContentStore) -> None:
    """Stop giving contents."""
    giver = _GIVERS.pop(store.folder, None)
    if giver is not None:
        giver.close()


def take(store: ContentStore, key: bytes, hashes: list[str], address: str, port: int) -> int:
    """Fetch contents from a giver. Returns how many came. Raises PaddockError."""
    with Receiver(store) as receiver:
        with (
            system_errors(f"{address}:{port}"),
            socket.create_connection((address, port), SILENCE_SECONDS) as link,
        ):
            _ask(link, key, hashes)
            while piece := link.recv(CHUNK_BYTES):
                receiver.feed(piece)
        return receiver.finish()


class Giver:
    """The server of offered contents: answers takers, each in a thread of its own."""

    def __init__(
        self, store: ContentStore, key: bytes, hashes: frozenset[str], address: str
    ) -> None:
        self._store = store
        self._key = key
        self._hashes = hashes
        self._places = threading.BoundedSemaphore(TAKERS_MAX)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._door = socket.create_server((address, 0), family=family, backlog=64)
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._serve, name="paddock-giver", daemon=True).start()

    def close(self) -> None:
        """Accept no more takers; those being served get the rest."""
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._door.close()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._door.accept()
            except OSError:
                return
            self._places.acquire()
            threading.Thread(target=self._give, args=(link,), daemon=True).start()

    def _give(self, link: socket.socket) -> None:
        try:
            with link, self._store.in_use():
                link.settimeout(SILENCE_SECONDS)
                for sha256 in self._asked(link):
                    with open(self._store.open(sha256), "rb", buffering=0) as file:
                        link.sendall(frame_head(sha256, os.fstat(file.fileno()).st_size))
                        link.sendfile(file)
        except (OSError, PaddockError):
            return  # the taker sees that the stream ends
        finally:
            self._places.release()

    def _asked(self, link: socket.socket) -> list[str]:
        """Return the hashes that a taker wants. Raises PaddockError if it does not have the key."""
        own = os.urandom(NONCE_BYTES)
        link.sendall(own)
        theirs = _exactly(link, NONCE_BYTES)
        proof = _exactly(link, PROOF_BYTES)
        if not hmac.compare_digest(proof, _prove(self._key, b"taker", own, theirs)):
            raise PaddockError("a taker without the key")
        link.sendall(_prove(self._key, b"giver", own, theirs))
        count = int.from_bytes(_exactly(link, 8), "big")
        if count > len(self._hashes):
            raise PaddockError("more is wanted than was offered")
        hashes = [_exactly(link, 32).hex() for _ in range(count)]
        if not self._hashes.issuperset(hashes):
            raise PaddockError("what is wanted was not offered")
        return hashes


def _ask(link: socket.socket, key: bytes, hashes: list[str]) -> None:
    theirs = _exactly(link, NONCE_BYTES)
    own = os.urandom(NONCE_BYTES)
    link.sendall(own + _prove(key, b"taker", theirs, own))
    proof = _exactly(link, PROOF_BYTES)
    if not hmac.compare_digest(proof, _prove(key, b"giver", theirs, own)):
        raise PaddockError("the giver does not have the key of this submission")
    link.sendall(len(hashes).to_bytes(8, "big") + b"".join(map(bytes.fromhex, hashes)))


def _prove(key: bytes, who: bytes, givers: bytes, takers: bytes) -> bytes:
    text = b"\0".join((b"paddock files", who, givers, takers))
    return hmac.new(key, text, hashlib.sha256).digest()


def _exactly(link: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = link.recv(size - len(found))
        if not piece:
            raise PaddockError("the other host has closed the connection", retryable=True)
        found += piece
    return found
