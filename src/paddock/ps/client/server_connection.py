"""A server as a trainer sees it: its links, what it has not acknowledged, and the way back.

Everything pushed stays here until it is acknowledged. After a broken connection the links are
made again and the unacknowledged frames are sent again, in order and with their old numbers: the
server applies each once. A server that comes back without its state is refused.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from _thread import RLock
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.waiting import WaitReport
from paddock.ps.connection import FrameConnection, Identity
from paddock.ps.stream import ConnectionClosed, ReadTimeout
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op
from paddock.ps.xxh3 import Buffer

T = TypeVar("T")
# Unacknowledged frames of one server, whatever the batches: 256 MiB at most.
FRAMES_MAX = 64
# Waits between attempts to reach a server again: from, factor, at most.
BACKOFF_SECONDS = (0.02, 1.6, 0.5)
# Silent links before a server counts as unreachable.
ATTEMPTS = 3
# Of a pair, the other server may serve already where the one is silent for so long.
PAIR_SILENCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """A frame that was sent; batch: the trainer's batch it belongs to."""

    batch: int
    header: Header
    body: tuple[Buffer, ...]


OnProgress = Callable[[int, int], None]  # told how many servers or shards are done, of how many


def no_progress(done: int, total: int) -> None:
    """For callers that show none."""


class OneThread(RLock):  # type: ignore[misc]  # typeshed calls it final, CPython does not
    """A lock that refuses a second thread, which would read answers to the first one's requests.

    A thread that has it may take it again. Raises UsageError.
    """

    def __enter__(self) -> bool:  # type: ignore[override]  # typeshed: acquire() by another name
        if not self.acquire(blocking=False):
            raise UsageError(
                "two threads called one Client at once",
                hint="a Client of its own for each thread, or a lock around its calls",
            )
        return True


class ServerConnection:
    """A server. endpoint: "host:port", or "host:port|host:port" with its replica's.

    purpose: of the link that asks: "control" of a trainer, "admin" of `paddock ps`.
    servers: how many the job has, as far as this side knows; 0 does not know.
    """

    def __init__(
        self,
        index: int,
        endpoint: str,
        identity: Identity,
        timeout: float,
        *,
        purpose: str = "control",
        servers: int = 0,
    ) -> None:
        if not 0 < timeout < math.inf:
            raise UsageError(f"timeout is {timeout}", hint="seconds, above 0")
        self.index = index
        self.endpoints = endpoint.split("|")
        self.identity = identity
        self.timeout = timeout
        # A silent link is made anew: what is on the way back may have been lost.
        self.silence = timeout / ATTEMPTS
        if len(self.endpoints) > 1:
            self.silence = min(self.silence, PAIR_SILENCE_SECONDS)
        self.purpose = purpose
        self.servers = servers
        self.server_id = ""
        self.term = 0
        self.reconnects = 0
        self.unacknowledged: deque[Unacknowledged] = deque()
        self._sequence = 0
        self._acknowledged = 0  # the highest number
        # Numbers of refused frames: told to the server, so that its window has no gap.
        self._refused: list[int] = []
        # Frames that were refused because their shard is elsewhere, oldest first: of nobody's yet.
        self.moved: deque[tuple[Unacknowledged, RequestError]] = deque()
        self.links: dict[str, FrameConnection] = {}  # by purpose
        self.is_ended = False
        self.one_thread = OneThread()  # at a time, over the link that asks

    # ------------------------------------------------------------------------------------- links

    def link(self, purpose: str) -> FrameConnection:
        """The link for pull, push or control; connects when there is none, once."""
        link = self.links.get(purpose)
        if link is None:
            self.check_open()
            link = self.links[purpose] = self._connect(purpose)
        return link

    def _connect(self, purpose: str) -> FrameConnection:
        problem: PaddockError | None = None
        for endpoint in list(self.endpoints):
            try:
                link = FrameConnection(endpoint, self.identity, purpose, self.silence)
                try:
                    self._recognise(link)
                except BaseException:
                    link.close()
                    raise
                return link
            except (ConnectionClosed, ReadTimeout) as error:
                problem = error
                self.endpoints.append(self.endpoints.pop(0))  # The other one of a pair is next.
        assert problem is not None
        raise problem

    def _recognise(self, link: FrameConnection) -> None:
        """Raises ConnectionClosed when another one of a pair serves, RequestError when its state
        is not ours."""
        welcome = link.welcome
        if welcome.role != "primary" or welcome.term < self.term:
            raise ConnectionClosed(
                f"server {link.endpoint} is a {welcome.role} (term {welcome.term})"
            )
        if self.servers and (welcome.server, welcome.servers) != (self.index, self.servers):
            raise RequestError(
                "usage",
                f"{link.endpoint} is server {welcome.server} of {welcome.servers}, here it is "
                f"listed as {self.index} of {self.servers}",
                hint="list all servers of the job, in the order that the servers were given",
            )
        if self.server_id and welcome.server_id != self.server_id:
            raise RequestError(
                "lost",
                f"server {self.index} ({link.endpoint}) came back without its state: "
                "its tables are gone, and training on would be training on new ones",
                hint="give it back its --data-dir, or load a checkpoint and start the job again",
            )
        if welcome.newest < self._acknowledged:
            raise RequestError(
                "lost",
                f"server {self.index} ({link.endpoint}) has this trainer's pushes up to number "
                f"{welcome.newest}, but had acknowledged number {self._acknowledged}: the end of "
                "its log is lost",
                hint="load a checkpoint and start the job again; --ack disk survives a power cut",
            )
        self.server_id, self.term = welcome.server_id, welcome.term

    def drop(self, purpose: str) -> None:
        """Forget a broken link."""
        link = self.links.pop(purpose, None)
        if link is not None:
            link.close()

    def lost(self, purpose: str, error: PaddockError, deadline: float) -> None:
        """A link is broken. Raises PaddockError after the deadline."""
        self.drop(purpose)
        self.reconnects += 1
        if time.monotonic() < deadline:
            return
        where = f"look at the last lines that server {self.index} printed"
        if os.environ.get("PADDOCK_JOB_ID"):  # The launcher keeps them.
            where = f"its last lines are in serverlog.{self.index}"
        raise PaddockError(
            f"server {self.index} ({'|'.join(self.endpoints)}) has not answered for "
            f"{self.timeout:g} s: {error.message}",
            hint=f"is it running? {where}; a longer wait: Client(timeout=...)",
            retryable=True,
        ) from error

    def retry(self, purpose: str, action: Callable[[FrameConnection], T]) -> T:
        """Run `action` with the link until it gets through, for at most `timeout` seconds."""
        deadline = time.monotonic() + self.timeout
        wait, factor, longest = BACKOFF_SECONDS
        while True:
            try:
                return action(self.links.get(purpose) or self.link(purpose))
            except (ConnectionClosed, ReadTimeout) as error:
                self.lost(purpose, error, deadline)
                left = max(0.0, deadline - time.monotonic())
                time.sleep(min(left, wait * (1.0 + 0.1 * random.random())))
                wait = min(wait * factor, longest)
            except RequestError:
                raise
            except BaseException:
                self.drop(purpose)  # An answer that nobody has read would be taken for the next.
                raise

    def check_open(self) -> None:
        """Raises UsageError after `end`."""
        if self.is_ended:
            raise UsageError("the client is closed", hint="make a new Client")

    def name(self, incarnation: int) -> None:
        """Speak as this incarnation of the trainer, over links that say so.

        The link that asked is open until the next one is: else the coordinator would take it for
        gone.
        """
        former, self.links = self.links, {}
        self.identity = replace(self.identity, incarnation=incarnation)
        try:
            if former:
                self.retry("control", lambda link: None)
        finally:
            for link in former.values():
                link.close()

    def close(self) -> None:
        """End all links; what comes later connects anew."""
        for purpose in list(self.links):
            self.drop(purpose)

    def end(self) -> None:
        """End all links for good."""
        self.close()
        self.is_ended = True

    # ------------------------------------------------------------------------------------ pushes

    def post(self, batch: int, header: Header, *body: Buffer) -> None:
        """Send a frame that changes the server; it is kept until the server says it has it.

        To a server that cannot be reached it goes with the next reach or settle.
        """
        waiting, who = self.unacknowledged, self.identity
        self._sequence += 1
        numbers, self._refused = [*self._refused, self._sequence], []
        for number in numbers:
            if number == self._sequence:
                frame, pieces = header, body
            else:
                frame, pieces = Header(Op.SKIP), ()
            frame = frame._replace(
                sequence=number, trainer=who.trainer, incarnation=who.incarnation
            )
            if waiting and batch < waiting[-1].batch:
                # Of an earlier batch, which another server refused: what waits for that one waits
                # for those in front of it.
                for at, one in enumerate(waiting):
                    waiting[at] = replace(one, batch=min(one.batch, batch))
            waiting.append(Unacknowledged(batch, frame, pieces))
            link = self.links.get("push")
            try:
                if link is not None or len(waiting) == 1:
                    (link or self.link("push")).post(frame, *pieces)
                # Else it could not be reached just now; resend() tries again, and sends all.
            except (ConnectionClosed, ReadTimeout):
                self.drop("push")
                self.reconnects += 1

    def resend(self) -> None:
        """Makes the push link anew, and sends what is not acknowledged (again).

        Raises PaddockError after `timeout` seconds.
        """

        def again(link: FrameConnection) -> None:
            for frame in self.unacknowledged:
                link.post(frame.header, *frame.body)

        self.retry("push", again)

    def wait_acked(self, oldest_batch: int) -> None:
        """Wait until nothing of a batch before `oldest_batch` is unacknowledged, and not much else.

        Raises RequestError, once for all, when the server refused frames: nothing of these was
        applied.
        Frames of shards that have moved go to `moved`; then all others have been answered, too.
        """
        waiting = self.unacknowledged
        # They keep their place, the first, while others are answered: so that after a broken
        # connection all come again in their order.
        moved: list[RequestError] = []
        problem: RequestError | None = None
        deadline = time.monotonic() + self.timeout
        while len(waiting) > len(moved) and (
            moved or len(waiting) >= FRAMES_MAX or waiting[0].batch < oldest_batch
        ):
            link = self.links.get("push")
            if link is None:
                moved.clear()  # They are sent, and answered, once more.
                self.resend()
                continue
            sent = waiting[len(moved)].header
            try:
                answer, _ = link.receive()
                if answer.sequence != sent.sequence:
                    raise ConnectionClosed("answers came out of order")
                self._acknowledged = max(self._acknowledged, sent.sequence)
            except (ConnectionClosed, ReadTimeout) as error:
                self.lost("push", error, deadline)
                continue
            except RequestError as refusal:
                if refusal.code == "moved":
                    moved.append(refusal)
                    continue
                self._refused.append(sent.sequence)
                if sent.op != Op.SKIP:  # Else what was refused itself has been raised.
                    problem = problem or refusal
            del waiting[len(moved)]
            deadline = time.monotonic() + self.timeout
        if moved:
            self._refused += [frame.header.sequence for frame in waiting]
            self.moved += zip(waiting, moved, strict=True)
            waiting.clear()
        if problem is not None:
            raise problem

    # ----------------------------------------------------------------------------------- control

    def exchange(self, header: Header, *body: Buffer) -> Buffer:
        """Sends a frame that may be repeated without harm; the body of its answer."""

        def once(link: FrameConnection) -> Buffer:
            link.stream.send(header, *body)
            return link.receive()[1]

        with self.one_thread:
            return self.retry(self.purpose, once)

    def file(self, op: Op, file: str, offset: int, *content: Buffer) -> Buffer:
        """READ: a frame of a file that the server keeps for this side (storage/spool.py).

        WRITE: a piece of it the other way, smaller than a frame.
        """
        head = json.dumps({"file": file, "offset": offset}).encode()
        header = self._header(op)._replace(count=len(head) if content else 0)
        return self.exchange(header, head, *content)

    def tables(self) -> list[dict[str, Any]]:
        """The tables of the server, as it describes them."""
        found: list[dict[str, Any]] = self.ask(Op.CONTROL, {"do": "tables"})["tables"]
        return found

    def ask(
        self,
        op: Op,
        data: dict[str, Any],
        *,
        step: int = 0,
        table: int = 0,
        wait: bool = False,
        again: bool = False,
    ) -> dict[str, Any]:
        """A question or an order that may be repeated without harm, as JSON; its answer.

        wait: the answer may take any time, so only a dead connection ends the wait.
        again: it waits for other trainers; asked anew now and then, for the answer may be lost.
        """
        header = self._header(op, table=table, step=step)
        body = json.dumps(data).encode()

        def once(link: FrameConnection) -> dict[str, Any] | None:
            link.stream.send(header, body)
            if wait:
                link.stream.set_silence(0)
            try:
                _, answer = link.receive()
            except ReadTimeout:
                if not again:
                    raise
                self.drop(self.purpose)
                return None
            finally:
                if wait and link.stream.fileno() >= 0:
                    link.stream.set_silence(self.silence)
            found: dict[str, Any] = json.loads(bytes(answer)) if answer else {}
            return found

        report = WaitReport(header.trainer)
        with self.one_thread:
            while (found := self.retry(self.purpose, once)) is None:
                # It has heard the question, at the latest over the new link.
                report.look(lambda: self.ask(Op.STATUS, {})["trainers"] or {})
        return found

    def _header(self, op: Op, *, table: int = 0, step: int = 0) -> Header:
        who = self.identity
        return Header(op, table=table, step=step, trainer=who.trainer, incarnation=who.incarnation)


def order_all(peers: Sequence[ServerConnection], op: Op, data: dict[str, Any]) -> None:
    """Give all servers an order that may be repeated without harm, in one round trip."""
    body = json.dumps(data).encode()
    asked = [(peer, peer.purpose, peer._header(op), body, None) for peer in peers]
    with ExitStack() as held:
        for peer in peers:
            held.enter_context(peer.one_thread)
        if asked and ask_once(asked) is None:
            for peer in peers:
                peer.ask(op, data)


def ask_once(
    asked: Sequence[tuple[ServerConnection, str, Header, Buffer, memoryview | None]],
) -> list[Header] | None:
    """Send a few small requests over links of these purposes, read all answers, into the view if
    there is one; their headers. None: something came between, so ask each anew.
    """
    links = list[FrameConnection]()
    try:
        for peer, purpose, header, body, _ in asked:
            link = peer.links.get(purpose) or peer.link(purpose)
            link.stream.send(header, body)
            links.append(link)
        return [link.receive(into)[0] for link, (*_, into) in zip(links, asked, strict=True)]
    except BaseException as error:
        for peer, purpose, *_ in asked:  # What nobody has read would be taken for the next answer.
            peer.drop(purpose)
        if not isinstance(error, (ConnectionClosed, ReadTimeout, RequestError)):
            raise
    return None
