"""Replays a transcript: what trainers say goes to a real coordinator, its answers are written down.

As in tests/scenarios: a block is a command, a line ``----`` and what is expected; other lines are
prose. The first command gives the rules, as ``group strategy=sync trainers=2``. Then::

    @12 arrive 1.7 5          trainer 1, incarnation 7, step 5; also join, leave, heard, gone: 1.7
    @12 reach 1.7 5 end 2     at barrier "end", 2nd time; then fresh: did no batch; 9: waits 9 s
    @13 tick
    restart                   the coordinator dies and is made again from its log
    restore                   the same, from a snapshot

``@12`` sets the clock. The first line of an answer is the coordinator's state; records have a star.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from paddock.ps.group import messages as w
from paddock.ps.group.state import GroupState, carry_out
from paddock.ps.wire.frames import Op
from transcript import replayed

if TYPE_CHECKING:
    from collections.abc import Callable


def carried_out(
    group: GroupState,
    event: w.Event,
    now: float = 0.0,
    write: Callable[[w.Record], object] = lambda record: None,
) -> list[w.Reply]:
    """Give the coordinator an event, write down and apply its records; the replies."""

    def logged(record: w.Record) -> list[w.Output]:
        write(record)
        return group.apply(record)

    return list(carry_out(group.handle(event, now), logged))


def replay(text: str) -> str:
    """The transcript with its expectations replaced by what happens now."""
    return replayed(text, lambda words: Story(words).do)


class Story:
    """A coordinator with its log."""

    def __init__(self, words: list[str]) -> None:
        assert words.pop(0) == "group"
        given = dict(word.split("=", 1) for word in words)
        self.rules = w.GroupRules(
            given.get("strategy", "sync"),  # type: ignore[arg-type]  # check_rules reads it
            staleness=int(given.get("staleness", 0)),
            trainers=int(given.get("trainers", 1)),
            silent_seconds=float(given.get("silent", 60)),
            gather_seconds=float(given.get("gather", 300)),
            on_silence=given.get("on_silence", "fail"),
        )
        assert w.check_rules(self.rules) == []
        self.group = GroupState(self.rules)
        self.log: list[tuple[Op, str]] = []
        self.now = 0.0
        self.shown: list[str] = []

    def do(self, words: list[str]) -> list[str]:
        """Carry out one command; the lines that tell what came of it."""
        if words[0].startswith("@"):
            self.now = float(words.pop(0)[1:])
        self.shown = []
        if words[0] in ("restart", "restore"):
            self.start_anew(from_log=words[0] == "restart")
        else:
            for reply in carried_out(self.group, self.event(words), self.now, self.write):
                self.shown.append("  " + shown(reply))
        return [self.state(), *self.shown]

    def event(self, words: list[str]) -> w.Event:
        what = words.pop(0)
        if what == "tick":
            return w.Tick()
        trainer, incarnation = (int(part) for part in words[0].split("."))
        if what == "reach":
            step, turn = int(words[1]), int(words[3])
            limit = next((float(word) for word in words[4:] if word != "fresh"), 0.0)
            return w.Reach(trainer, incarnation, step, words[2], turn, "fresh" in words, limit)
        if what == "arrive":
            return w.Arrive(trainer, incarnation, int(words[1]))
        return {
            "join": w.JoinRequest,
            "leave": w.LeaveRequest,
            "heard": w.Heard,
            "gone": w.ConnectionLost,
        }[what](trainer, incarnation)

    def write(self, record: w.Record) -> None:
        op, data = w.record_to_json(record)
        self.log.append((op, json.dumps(data)))
        self.shown.append("* " + shown(record))

    def start_anew(self, *, from_log: bool) -> None:
        before = self.group.to_json()
        if from_log:
            self.group = GroupState(self.rules)
            for op, body in self.log:
                self.group.apply(w.record_from_json(op, json.loads(body)))
            self.group.forget()
        else:
            self.group = GroupState.from_json(self.rules, json.loads(json.dumps(before)))
        assert self.group.to_json() == before

    def state(self) -> str:
        members = " ".join(f"{t}.{life}" for t, life in self.group.members) or "nobody"
        gathering = "" if self.group.is_started else ", gathering"
        failed = f", failed: {self.group.failure}" if self.group.failure else ""
        return f"step {self.group.slowest}: {members}{gathering}{failed}"


def shown(output: w.Output) -> str:
    """One record or reply in one line."""
    if isinstance(output, w.StepCommitted):
        members = " ".join(f"{t}.{life}" for t, life in output.members)
        return f"StepCommitted {output.step}: {members}"
    if isinstance(output, w.BarrierOpened):
        passed = " ".join(f"{trainer}.{life}" for trainer, life, _ in output.passed)
        return f"BarrierOpened {output.name}, {output.turn}: {passed}"
    if isinstance(output, w.GroupBegan):
        return "GroupBegan"
    if isinstance(output, w.Fail):
        return f"Fail: {output.reason}"
    who = f"{type(output).__name__} {output.trainer}.{output.incarnation}"
    if isinstance(output, w.MemberExpelled):
        return f"{who}: {output.reason}"
    if isinstance(output, w.RequestRefused):
        return f"{who} ({output.code}): {output.reason}"
    commit = ""
    if isinstance(output, (w.JoinAccepted, w.Release)) and output.commit is not None:
        relayed = output.commit
        members = " ".join(f"{t}.{life}" for t, life in relayed.members)
        commit = f", relays {relayed.step}: {members}"
    return f"{who} after {output.step}{commit}"
