"""Strategies of a trainer at a push and at the end of a batch, one class each.

The client calls; the strategy decides flags and waits. Batches are counted from 1 in sync and
staleness, where servers know them as steps.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.server_connection import order_all
from paddock.ps.client.server_group import ServerGroup
from paddock.ps.client.trainer_config import TrainerConfig
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.strategies import STRATEGIES
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op

if TYPE_CHECKING:
    from paddock.ps.client.partition import Column, RemoteTable, Runs
    from paddock.ps.spec import TableSpec
    from paddock.ps.wire.offsets import OffsetMark


class Strategy:
    """async: a push is on its way while the trainer computes; at most `window` batches are.

    The other strategies change what differs.
    """

    name = "async"
    flags = 0
    staleness = 0
    unfinished = 0  # pushes since the last step()
    unexchanged = 0  # batches since the last exchange of geo
    pull = staticmethod(ServerGroup.pull)
    has_version = staticmethod(ServerGroup.has_version)

    def __init__(self, window: int, place: TrainerConfig) -> None:
        self.window = window
        self.place = place

    def check_table(self, spec: TableSpec) -> None:
        """Raise UsageError for options of a table that this strategy cannot honour."""

    def join(self, group: ServerGroup) -> None:
        """The trainer begins: the coordinator says at which step."""
        # All trainers of a job must agree on strategy and staleness.
        terms: dict[str, Any] = {"strategy": self.name, "staleness": self.staleness}
        terms["nonce"] = group.session_nonce
        if self.place.is_counted:
            terms["trainers"] = self.place.trainers
        while True:
            answer = group.peers[0].ask(Op.JOIN, terms, again=True)
            for peer in group.peers:
                peer.name(int(answer["incarnation"]))
            done = int(answer["step"])
            # Each server remembers all of them: one that comes back empty is known as such, also
            # by trainers that have not seen it before.
            states = [peer.server_id for peer in group.peers]
            fence = {"states": states, "nonce": group.session_nonce, "step": done}
            try:
                for peer in group.peers:
                    answered = peer.ask(Op.FENCE, fence)
                    group.note_loads(peer.index, answered.get("loads", 0))
                break
            except RequestError as refusal:
                if "newest" not in refusal.facts:
                    raise
                # It begins with a higher number than the coordinator knew of.
                terms["above"] = refusal.facts["newest"]
        if "commit" in answer:
            order_all(group.peers[1:], Op.COMMIT, answer["commit"])
            group.all_ended = dict(answer["commit"]["ended"])
        group.step = done + 1

    def leave(self, group: ServerGroup) -> None:
        """The trainer ends; everything is acknowledged."""
        group.peers[0].ask(Op.LEAVE, {})

    def push(
        self,
        group: ServerGroup,
        remote: RemoteTable,
        columns: list[Column],
        runs: Runs | None = None,
    ) -> None:
        """Send gradients, (n, dim) of distinct keys (n,), or of a vector's runs.

        The arrays belong to the strategy now.
        """
        self.unfinished += 1
        with group.room(self.window):
            group.post(Op.PUSH, remote, columns, self.flags, runs)

    def forget(self, table: str, columns: list[Column] | None = None) -> None:
        """A table has other values: copies, and what is to be sent of them, are void.

        columns: [keys, (n,) int64], of those rows alone.
        """

    def check_loads(self, group: ServerGroup) -> None:
        """Ask the servers, where there are copies of tables, and forget_loaded()."""

    def forget_loaded(self, group: ServerGroup) -> bool:
        """Copies are void if the group knows of a load since; True if so."""
        return False

    def set_rate(self, group: ServerGroup, remote: RemoteTable, rate: Rate) -> None:
        """A new rate from here on, in the order of what this trainer pushes; in sync of a step."""
        body = json.dumps(rate._asdict()).encode()
        with group.room(self.window):
            for peer, number in zip(group.peers, remote.numbers, strict=True):
                peer.post(group.batch, Header(Op.RATE, self.flags, number, step=group.step), body)

    def step(self, group: ServerGroup) -> None:
        """The end of a batch."""

    def commit_offset(self, group: ServerGroup, position: dict[str, Any]) -> None:
        """Send a position behind what it belongs to, to every server; wait for nothing."""
        self.flush(group)
        progress = group.progress
        if not progress.is_counting:
            progress.begin(group.marks(), again=False)
        with group.room(self.window):
            for server in progress.note(position):
                header = Header(Op.COMMIT_OFFSET, step=progress.number)
                group.peers[server].post(group.batch, header, json.dumps(position).encode())

    def resume_offset(self, group: ServerGroup, *, replays: bool) -> Any:
        """The position that every server has reached."""
        marks = group.marks()
        if not (group.progress.has_pushed and replays):
            return group.progress.begin(marks, again=replays)
        return min(marks, key=lambda mark: mark.number).position

    def offsets(self, marks: list[OffsetMark]) -> tuple[Any, Any]:
        """The positions of one trainer, least and furthest; marks: each server's."""
        ordered = sorted(marks, key=lambda mark: mark.number)
        return ordered[0].position, ordered[-1].position

    def flush(self, group: ServerGroup) -> None:
        """Send what the strategy still holds."""


class HalfAsync(Strategy):
    """half_async: each batch waits for its own acknowledgement, for no other trainer."""

    name = "half_async"

    def step(self, group: ServerGroup) -> None:
        """Wait until this batch is applied, so that the next pull sees it."""
        group.wait_acked(0)


class Clocked(Strategy):
    """staleness=N: pushes are applied at once; nobody is more than N batches ahead."""

    name = "staleness"

    def step(self, group: ServerGroup) -> None:
        """Tell the coordinator; wait until the slowest is near enough."""
        group.wait_acked(0)
        group.peers[0].ask(Op.ARRIVE, {}, step=group.step, again=True)
        group.step += 1


class Sync(Clocked):
    """sync: one step of all trainers at a time, the same bits whoever is faster."""

    name = "sync"
    flags = int(FrameFlag.CONTRIBUTION)  # What is pushed is no part of any step yet.
    is_spoilt = False

    def commit_offset(self, group: ServerGroup, position: dict[str, Any]) -> None:
        """It belongs to this step."""
        group.wait_acked(0)
        group.peers[0].ask(Op.COMMIT_OFFSET, position, step=group.step)

    def resume_offset(self, group: ServerGroup, *, replays: bool) -> Any:
        """That of the newest step that is done."""
        return group.marks()[0].position

    def offsets(self, marks: list[OffsetMark]) -> tuple[Any, Any]:
        """Server 0 alone is told, and has those of complete steps."""
        return marks[0].position, marks[0].position

    def leave(self, group: ServerGroup) -> None:
        """The trainer ends. Raises PaddockError when it leaves a step unfinished."""
        super().leave(group)
        if self.unfinished:
            raise PaddockError(
                f"sync: pushes since the last step() were never applied: {self.unfinished}",
                hint="client.step() after each batch, the last one too; flush() does not apply",
            )

    def step(self, group: ServerGroup) -> None:
        """All of this step is with the servers; wait for the others; have it applied everywhere."""
        try:
            group.wait_acked(0)
        except RequestError:
            self.is_spoilt = True  # It would be committed in parts.
            raise
        if self.is_spoilt:
            raise PaddockError(
                "sync: a push of this step was refused, so the step cannot be completed",
                hint="start this trainer anew: what it gave to the step is dropped, and done again",
            )
        group.finish_pulls()  # Of this step: no commit may fall between the rows.
        coordinator, *others = group.peers
        said = {"ended": group.ended} if group.ended else {}
        answer = coordinator.ask(Op.ARRIVE, said, step=group.step, again=True)
        group.ended, group.all_ended = 0, dict(answer["ended"])
        order_all(others, Op.COMMIT, {"step": answer["step"], "members": answer["members"]})
        group.step += 1
        self.unfinished = 0


def make_strategy(
    name: str,
    staleness: int,
    window: int,
    geo_step: int,
    place: TrainerConfig,
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
