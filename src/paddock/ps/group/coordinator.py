"""The coordinator's shell: gives events to the pure machine, logs its records, wakes who waits.

One lock owns the machine. A trainer's Join or Arrive blocks its own connection's thread until
the machine has a reply for it; a new question of the same trainer replaces the old one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from paddock.ps.group.messages import (
    Arrive,
    ConnectionLost,
    Event,
    Fail,
    GroupBegan,
    GroupRules,
    Heard,
    Hold,
    JoinAccepted,
    JoinRequest,
    LeaveRequest,
    MemberExpelled,
    MemberJoined,
    MemberLeft,
    Output,
    Reach,
    Record,
    Release,
    Reply,
    RequestRefused,
    StepCommitted,
    Tick,
    check_rules,
    record_to_json,
)
from paddock.ps.group.state import GroupState, carry_out
from paddock.ps.group.waits import STUCK
from paddock.ps.server.engine import Engine
from paddock.ps.server.records import INCARNATIONS_MAX, STEP_MAX
from paddock.ps.strategies import CLOCKED
from paddock.ps.stream import ConnectionClosed
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op
from paddock.ps.wire.values import value_from

TICK_SECONDS = 0.25
# A trainer that waits is looked after: is its connection still there?
LOOK_SECONDS = 1.0
IsGone = Callable[[], bool]
NAME_LENGTH_MAX = 200


class GroupCoordinator:
    """The coordinator of a job's trainers. rules: but for the strategy, which the first trainer
    says."""

    def __init__(self, engine: Engine, rules: GroupRules, say: Callable[[str], None]) -> None:
        self.engine = engine
        self.rules = rules
        self.say = say
        self._changed = threading.Condition()
        self._replies: dict[tuple[int, int], Reply] = {}
        self._asked: dict[tuple[int, int], int] = {}
        self._stopped = False

    @property
    def group(self) -> GroupState | None:
        """The machine; None until the first trainer has joined."""
        return self.engine.store.group

    # -------------------------------------------------------------------------------- questions

    def join(self, trainer: int, terms: dict[str, Any], is_gone: IsGone) -> dict[str, Any]:
        """A trainer begins; waits until it is a member. Raises RequestError."""
        with self._changed:
            rules = self._asked_for(terms)
            if self.group is None:
                self.engine.record(Op.RULES, asdict(rules))
                self.say(f"strategy {rules.strategy}, {rules.trainers} trainers")
            self._agree(rules, terms.get("trainers"))
            if is_gone():  # A later incarnation of it may be here already.
                raise ConnectionClosed("the trainer has gone")
            incarnation = self._number(trainer, terms)
            reply = self._ask(JoinRequest(trainer, incarnation), is_gone)
        assert isinstance(reply, JoinAccepted)
        answer: dict[str, Any] = {"step": reply.step, "incarnation": incarnation}
        if reply.commit is not None:
            answer["commit"] = asdict(reply.commit)
        return answer

    def _number(self, trainer: int, terms: dict[str, Any]) -> int:
        """The incarnation of the process that asks: the one it was given before, else the next.

        Not of its clock: a trainer that is moved to another host must not be older than before.
        """
        store, nonce, above = self.engine.store, terms.get("nonce"), terms.get("above", 0)
        newest, known = store.incarnations.get(trainer, (0, ""))
        is_right = isinstance(nonce, str) and nonce and isinstance(above, int)
        if not is_right or above > newest + INCARNATIONS_MAX:
            raise RequestError(
                "usage", f"session nonce {nonce!r} of trainer {trainer}, above {above!r}"
            )
        if known == nonce and newest > above:
            return newest
        incarnation: int = max(newest, above) + 1
        self.engine.record(Op.FENCE, {"nonce": nonce}, trainer=trainer, incarnation=incarnation)
        return incarnation

    def _asked_for(self, terms: dict[str, Any]) -> GroupRules:
        strategy, staleness = terms.get("strategy", "async"), terms.get("staleness", 0)
        if not isinstance(staleness, int):
            raise RequestError("usage", f"staleness is {staleness!r}")
        rules = replace(self.rules, strategy=strategy, staleness=staleness)
        for problem in check_rules(rules):
            raise RequestError("usage", problem.message, hint=problem.hint)
        return rules

    def _agree(self, rules: GroupRules, trainers: object) -> None:
        """trainers: how many the trainer counts, None when nobody told it."""
        if trainers not in (None, rules.trainers):
            raise RequestError(
                "spec",
                f"this trainer counts {trainers} trainers, the servers {rules.trainers}",
                hint="PADDLE_TRAINERS_NUM here, --num_gradient_servers there",
            )
        held = self.engine.store.rules
        assert held is not None
        if (rules.strategy, rules.staleness) != (held.strategy, held.staleness):
            raise RequestError(
                "spec",
                f"this job's trainers follow {held.strategy} (staleness {held.staleness}), "
                f"this one asks for {rules.strategy} (staleness {rules.staleness})",
                hint="every trainer of a job must use the same strategy; "
                "or these servers still hold an earlier run: restart them without its --data-dir",
            )

    def _ask(self, event: JoinRequest | Arrive | Reach, is_gone: IsGone) -> Reply:
        """The machine's reply to this trainer; lock held. Raises RequestError."""
        who = event.trainer, event.incarnation
        number = self._asked.get(who, 0) + 1
        self._asked[who] = number
        self._replies.pop(who, None)
        self._handle(event)
        while who not in self._replies:
            if self._stopped or self._asked[who] != number:
                raise ConnectionClosed("the server is ending, or the question was asked anew")
            if is_gone():
                if isinstance(event, JoinRequest):
                    self._handle(LeaveRequest(*who))  # Nobody would be there to take part.
                elif isinstance(event, Reach):
                    self._handle(ConnectionLost(*who))
                raise ConnectionClosed("the trainer has gone")
            self._changed.wait(LOOK_SECONDS)
        reply = self._replies.pop(who)
        if isinstance(reply, RequestRefused):
            group = self.group
            strategy = group.rules.strategy if group is not None else ""
            raise RequestError(reply.code, reply.reason, hint=_hint(event, reply, strategy))
        return reply

    def _handle(self, event: Event) -> None:
        """Give an event to the machine, carry out what it says; lock held."""
        group = self.group
        if group is None:
            if not isinstance(event, Tick):
                raise RequestError("usage", "the trainer has not joined")
            return
        for reply in carry_out(group.handle(event, time.monotonic()), self._write):
            if isinstance(reply, Fail):
                self.say(f"the job has failed: {reply.reason}")
            else:
                self._replies[reply.trainer, reply.incarnation] = reply
        self._changed.notify_all()

    def _write(self, record: Record) -> list[Output]:
        assert self.group is not None
        line = _sentence(record, self.group)
        if line:
            self.say(line)
        return self.engine.record(*record_to_json(record)).outputs

    def standing(self, trainer: int) -> tuple[bool, bool]:
        """(whether a trainer takes part, whether it has left or was expelled)."""
        with self._changed:
            return (False, False) if self.group is None else self.group.standing(trainer)

    def describe(self) -> dict[str, Any]:
        """The group's members, and whom they wait for; {} before the first trainer."""
        with self._changed:
            return {} if self.group is None else self.group.describe()

    def hold(self, seconds: float) -> dict[str, Any]:
        """Complete no step for so long, in sync; the last one that is done. 0: go on."""
        with self._changed:
            if self.group is None:
                return {}
            self._handle(Hold(seconds))
            done = self.group.last_commit
            return {} if done is None else {"commit": asdict(done)}

    # ------------------------------------------------------------------------------------- time

    def tick(self, connected: set[tuple[int, int]]) -> None:
        """Time passes. connected: trainers whose connection is open and not silent for long."""
        with self._changed:
            if self.group is None:
                return
            for trainer, incarnation in connected:
                self.group.handle(Heard(trainer, incarnation), time.monotonic())
            self._handle(Tick())

    def let_go(self) -> None:
        """Everybody that waits asks again, of the new primary."""
        with self._changed:
            self._asked = {who: number + 1 for who, number in self._asked.items()}
            self._replies.clear()
            self._changed.notify_all()

    def stop(self) -> None:
        """Let go of everybody that waits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def coordinate(self, header: Header, data: dict[str, Any], is_gone: IsGone) -> dict[str, Any]:
        """A Join, Leave or Arrive frame, also that of a barrier.

        Waits until the trainer is a member, or may go on. Raises RequestError.
        """
        who = header.trainer, header.incarnation
        if header.op == Op.JOIN:
            return self.join(header.trainer, data, is_gone)
        with self._changed:
            if header.op == Op.LEAVE:
                if self.group is not None:
                    self._handle(LeaveRequest(*who))
                return {}
            event = _reach(header, data) if data.keys() - {"ended"} else _arrive(header, data)
            reply = self._ask(event, is_gone)
        assert isinstance(reply, Release)
        return asdict(reply.commit or StepCommitted(reply.step, ()))


def _arrive(header: Header, data: dict[str, Any]) -> Arrive:
    """The trainer has sent all of a step. Raises RequestError."""
    ended = data.get("ended", 0)
    if type(ended) is not int or not 0 <= ended < STEP_MAX:
        raise RequestError("usage", f"trainer {header.trainer} is through with {ended!r} passes")
    return Arrive(header.trainer, header.incarnation, header.step, ended)


def _reach(header: Header, data: dict[str, Any]) -> Reach:
    """The trainer's question. Raises RequestError."""
    who = {"trainer": header.trainer, "incarnation": header.incarnation, "step": header.step}
    try:
        reach: Reach = value_from(Reach, {**data, **who})
    except ValueError as error:
        raise RequestError("usage", f"this is no barrier: {error}") from error
    name = f"barrier {reach.name[:NAME_LENGTH_MAX]!r}"
    if not reach.seconds >= 0:
        raise RequestError("usage", f"{name}: timeout is {reach.seconds}", hint="0 has no limit")
    if not 0 < len(reach.name) <= NAME_LENGTH_MAX or reach.turn < 1:
        raise RequestError(
            "usage",
            f"{name}, turn {reach.turn}",
            hint=f"a name of 1 to {NAME_LENGTH_MAX} characters, turns from 1",
        )
    return reach


def _hint(event: JoinRequest | Arrive | Reach, reply: RequestRefused, strategy: str) -> str:
    """The hint for a trainer that is refused."""
    if reply.code == "fenced":
        return "is another process running as this trainer? each needs its own PADDLE_TRAINER_ID"
    if reply.code == "usage" and isinstance(event, JoinRequest):
        return "a job of more trainers: start the servers with a larger --num_gradient_servers"
    if reply.code == "usage" and isinstance(event, Reach):
        return "use one name again and again instead of a new one each time"
    if reply.code == "failed" and reply.reason.startswith(STUCK):
        if strategy == "sync":
            return (
                "in sync every trainer calls step() and barrier() as often as the others: give all "
                "as many batches, or let one that has none left close its client instead of "
                "waiting; strategy='staleness' takes unequal numbers of batches"
            )
        return "all trainers must call the same barriers in the same order"
    if reply.code == "failed" and "silent" in reply.reason:
        return "look at its log; --trainer-timeout is its time, --on-lost-trainer rescale goes on"
    if reply.code == "expelled":
        return "start it again; a longer wait for trainers: --trainer-timeout"
    return ""


def _sentence(record: Record, group: GroupState) -> str:
    """The log line of a record; "" for none."""
    counts = group.rules.strategy in CLOCKED
    if isinstance(record, MemberJoined):
        return f"trainer {record.trainer} joined" + f" at step {record.step + 1}" * counts
    if isinstance(record, MemberLeft):
        return f"trainer {record.trainer} left" + f" after step {record.step}" * counts
    if isinstance(record, MemberExpelled):
        return f"trainer {record.trainer} expelled: {record.reason}"
    if isinstance(record, GroupBegan):
        return f"begins with {len(group.members)} of {group.rules.trainers} trainers"
    return ""
