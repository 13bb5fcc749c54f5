"""What a trainer does at a push and at the end of a batch, one class per strategy.

The client calls; the strategy decides flags and waits. Batches are counted from 1 in sync and
staleness, where servers know them as steps.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.peer import tell_all
from paddock.ps.client.place import Place
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Flag, Header, Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.ps.client.pieces import Column, Known, Rows, Runs
    from paddock.ps.client.traffic import Traffic, Wanted
    from paddock.ps.consistency.positions import Mark

STRATEGIES = ("sync", "half_async", "async", "geo", "staleness")


class Strategy:
    """async: a push is on its way while the trainer computes; at most `window` batches are.

    The other strategies change what differs.
    """

    name = "async"
    flags = 0
    staleness = 0

    def __init__(self, window: int, place: Place) -> None:
        self.window = window
        self.place = place

    @property
    def is_exchanged(self) -> bool:
        """Whether no batch waits here for an exchange, as those of geo do."""
        return True

    def join(self, traffic: Traffic) -> None:
        """The trainer begins: the chief says at which step."""
        terms = {**self.terms(), "life": traffic.life}
        if self.place.is_counted:
            terms["trainers"] = self.place.trainers
        while not self._begin(traffic, terms):
            pass  # With a higher number than the chief knew of.

    def _begin(self, traffic: Traffic, terms: dict[str, Any]) -> bool:
        """Have the chief number this life of the trainer, and begin. False: another one has it."""
        answer = traffic.peers[0].ask(Op.JOIN, terms, again=True)
        for peer in traffic.peers:
            peer.name(int(answer["incarnation"]))
        done = int(answer["step"])
        # Each server remembers all of them: one that comes back empty is known as such, also by
        # trainers that have not seen it before.
        states = [peer.server_id for peer in traffic.peers]
        for peer in traffic.peers:
            try:
                peer.ask(Op.FENCE, {"states": states, "life": traffic.life, "step": done})
            except RequestError as refusal:
                if "newest" not in refusal.facts:
                    raise
                terms["above"] = refusal.facts["newest"]
                return False
        if "commit" in answer:
            tell_all(traffic.peers[1:], Op.COMMIT, answer["commit"])
        traffic.step = done + 1
        return True

    def terms(self) -> dict[str, Any]:
        """What all trainers of a job must agree on."""
        return {"strategy": self.name, "staleness": self.staleness}

    def leave(self, traffic: Traffic) -> None:
        """The trainer ends; everything is acknowledged."""
        traffic.peers[0].ask(Op.LEAVE, {})

    def pull(self, traffic: Traffic, wanted: Sequence[Wanted]) -> list[Rows]:
        """Of each table the rows of distinct keys, or its vector into the array."""
        return traffic.pull(wanted)

    def push(
        self, traffic: Traffic, known: Known, columns: list[Column], runs: Runs | None = None
    ) -> None:
        """Send gradients of distinct keys, or of a vector's runs. The arrays belong to the strategy
        now.
        """
        with traffic.room(self.window):
            traffic.post(Op.PUSH, known, columns, self.flags, runs)

    def forget(self, table: str, columns: list[Column] | None = None) -> None:
        """A table has other values, of columns the keys' rows alone: copies, and what is to be sent
        of them, are void."""

    def set_lr(self, traffic: Traffic, known: Known, lr: float) -> None:
        """A new rate from here on, in the order of what this trainer pushes; in sync of a step."""
        with traffic.room(self.window):
            traffic.post_all(Op.RATE, known, {"lr": lr}, self.flags)

    def step(self, traffic: Traffic) -> None:
        """The end of a batch."""

    def commit_offset(self, traffic: Traffic, position: dict[str, Any]) -> None:
        """Send a position behind what it belongs to, to every server; wait for nothing."""
        self.flush(traffic)
        progress = traffic.progress
        if not progress.is_counting:
            progress.begin(traffic.marks(), again=False)
        with traffic.room(self.window):
            for server in progress.note(position):
                header = Header(Op.POSITION, step=progress.number)
                traffic.peers[server].post(traffic.batch, header, json.dumps(position).encode())

    def resume_offset(self, traffic: Traffic, *, replays: bool) -> Any:
        """The position that every server has reached."""
        marks = traffic.marks()
        if not (traffic.progress.has_pushed and replays):
            return traffic.progress.begin(marks, again=replays)
        return min(marks, key=lambda mark: mark.number).position

    def offsets(self, marks: list[Mark]) -> tuple[Any, Any]:
        """The positions of one trainer, least and furthest; marks: each server's."""
        ordered = sorted(marks, key=lambda mark: mark.number)
        return ordered[0].position, ordered[-1].position

    def flush(self, traffic: Traffic) -> None:
        """Send what the strategy still holds."""


class HalfAsync(Strategy):
    """half_async: each batch waits for its own acknowledgement, for no other trainer."""

    name = "half_async"

    def step(self, traffic: Traffic) -> None:
        """Wait until this batch is applied, so that the next pull sees it."""
        traffic.settle(0)


class Clocked(Strategy):
    """staleness=N: pushes are applied at once; nobody is more than N batches ahead."""

    name = "staleness"

    def step(self, traffic: Traffic) -> None:
        """Tell the chief; wait until the slowest is near enough."""
        traffic.settle(0)
        traffic.peers[0].ask(Op.ARRIVE, {}, step=traffic.step, again=True)
        traffic.step += 1


class Sync(Clocked):
    """sync: one step of all trainers at a time, the same bits whoever is faster."""

    name = "sync"
    flags = int(Flag.CONTRIBUTION)
    # Pushes since the last step(): with the servers, but no part of any step yet.
    unfinished = 0
    is_spoilt = False

    def push(
        self, traffic: Traffic, known: Known, columns: list[Column], runs: Runs | None = None
    ) -> None:
        """Send a contribution to this step."""
        self.unfinished += 1
        super().push(traffic, known, columns, runs)

    def commit_offset(self, traffic: Traffic, position: dict[str, Any]) -> None:
        """It belongs to this step."""
        traffic.settle(0)
        traffic.peers[0].ask(Op.POSITION, position, step=traffic.step)

    def resume_offset(self, traffic: Traffic, *, replays: bool) -> Any:
        """That of the newest step that is done."""
        return traffic.marks()[0].position

    def offsets(self, marks: list[Mark]) -> tuple[Any, Any]:
        """Server 0 alone is told, and has those of complete steps."""
        return marks[0].position, marks[0].position

    def _settle(self, traffic: Traffic) -> None:
        """Wait for everything; a refusal spoils the step: it would be committed in parts."""
        try:
            traffic.settle(0)
        except RequestError:
            self.is_spoilt = True
            raise

    def leave(self, traffic: Traffic) -> None:
        """The trainer ends. Raises PaddockError when it leaves a step unfinished."""
        super().leave(traffic)
        if self.unfinished:
            raise PaddockError(
                f"sync: pushes since the last step() were never applied: {self.unfinished}",
                hint="client.step() after each batch, the last one too; flush() does not apply",
            )

    def step(self, traffic: Traffic) -> None:
        """All of this step is with the servers; wait for the others; have it applied everywhere."""
        self._settle(traffic)
        if self.is_spoilt:
            raise PaddockError(
                "sync: a push of this step was refused, so the step cannot be completed",
                hint="start this trainer anew: what it gave to the step is dropped, and done again",
            )
        traffic.finish_pulls()  # Of this step: no commit may fall between the rows.
        chief, *others = traffic.peers
        answer = chief.ask(Op.ARRIVE, {}, step=traffic.step, again=True)
        tell_all(others, Op.COMMIT, {"step": answer["step"], "members": answer["members"]})
        traffic.step += 1
        self.unfinished = 0


def make_strategy(
    name: str,
    staleness: int,
    window: int,
    geo_step: int,
    place: Place,
    geo_merge: str = "mean",
) -> Strategy:
    """The strategy of this name. Raises UsageError."""
    if window < 1:
        raise UsageError(f"window is {window}", hint="at least 1 batch")
    if name == "geo":
        from paddock.ps.client.geo import Geo

        return Geo(window, place, geo_step, geo_merge)
    kinds = {one.name: one for one in (Strategy, HalfAsync, Clocked, Sync)}
    if name not in kinds:
        raise UsageError(f"strategy {name!r} is unknown", hint="one of " + ", ".join(STRATEGIES))
    made = kinds[name](window, place)
    if name == "staleness":
        if staleness < 0:
            raise UsageError(f"staleness is {staleness}", hint="0 or more batches")
        made.staleness = staleness
    return made


__all__ = ["STRATEGIES", "Strategy", "make_strategy"]
