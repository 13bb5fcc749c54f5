"""The dispatcher as a service of server 0: events out of JSON, changes into the server's notes.

It holds nothing between two questions: the dispatcher is made from the notes each time. So it is
the same after a restart, on the replica that takes over, and after a checkpoint is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paddock.data.dispatch import messages
from paddock.data.dispatch.state import Dispatch
from paddock.errors import UsageError

if TYPE_CHECKING:
    from paddock.ps.server.services import Desk

SERVICE = "data"
STREAMS_MAX = 100
NAME_LENGTH_MAX = 100
# A turn's leases get numbers above those that any past has given: so many for each record.
NUMBERS_A_RECORD = messages.LEASES_MAX


class DispatcherService:
    """Answers {"stream": name, "do": begin | turn | leave | found | forget | look, ...}."""

    def answer(
        self, who: tuple[int, int] | None, question: Mapping[str, Any], desk: Desk
    ) -> dict[str, Any]:
        """The reply, by its name. Raises UsageError."""
        name = str(question.get("stream", ""))
        of = f"{name}/"
        notes = {k.removeprefix(of): v for k, v in desk.notes.items() if k.startswith(of)}
        known = {key.partition("/")[0] for key in desk.notes}
        if not name or "/" in name or len(name) > NAME_LENGTH_MAX:
            raise UsageError(f"stream {name!r}", hint="a name without '/', of 1 to 100 letters")
        if name not in known and len(known) >= STREAMS_MAX:
            raise UsageError(f"stream {name!r}: there are {STREAMS_MAX} already", hint="use fewer")
        dispatch = Dispatch(notes, desk.serial * NUMBERS_A_RECORD, desk.past)
        if question.get("do") == "look" or who is None:
            return dispatch.describe()
        if question.get("do") == "forget":
            desk.keep({f"{name}/{key}": None for key in notes})
            return {}
        event = event_from(who, question)
        aside = len(dispatch.aside)
        reply = dispatch.handle(event)
        # It is early enough to ask who is gone when somebody waits for him.
        gone = (
            [n for n in reply.holders if desk.is_gone(n)]
            if isinstance(reply, messages.Wait)
            else []
        )
        for number in gone:
            dispatch.handle(messages.WorkerLost(number))
            desk.say(f"stream {name}: worker {number} is gone, its chunks are given on")
        if gone:
            reply = dispatch.handle(event)
        changes = dispatch.changes()
        if changes:
            desk.keep({f"{name}/{key}": value for key, value in changes.items()})
        for one in dispatch.aside[aside:]:
            desk.say(
                f"stream {name}: chunk {one.chunk} is set aside at record {one.start} of it, in "
                f"pass {one.pass_}: {one.reason}"
            )
        return {"is": _NAMES[type(reply)], **_facts_of(reply)}


def event_from(who: tuple[int, int], question: Mapping[str, Any]) -> messages.Event:
    """The event of a question. Raises UsageError."""
    worker, incarnation = who
    do = question.get("do")
    try:
        if do == "begin":
            plan = messages.PassPlan(**question["plan"])
            _int(plan.chunks), _int(plan.passes), _int(plan.tries)
            return messages.RegisterWorker(worker, incarnation, plan, _seen(question))
        if do == "turn":
            reports = tuple(
                messages.LeaseResult(_int(r[0]), _int(r[1]), str(r[2])) for r in question["reports"]
            )
            place = str(question["digest"]), _int(question["pass_"])
            return messages.Poll(worker, incarnation, *place, reports, _int(question["hold"]))
        if do == "leave":
            return messages.ReleaseChunks(worker, incarnation, _seen(question))
        if do == "found":
            seen = {int(n): (_int(a), _int(b)) for n, (a, b) in question["seen"].items()}
            return messages.ProgressReport(_int(question["worker"]), _int(question["life"]), seen)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise UsageError(f"this is no question to the dispatcher: {error!r}") from error
    raise UsageError(f"the dispatcher was asked to {do!r}", hint="begin, turn, leave, found, look")


def question_of(event: messages.Event) -> dict[str, Any]:
    """The event as JSON: `event_from` reads it."""
    return {"do": _NAMES[type(event)], **_facts_of(event)}


# The names on the wire; servers and workers of other versions know them.
_NAMES: dict[type, str] = {
    messages.RegisterWorker: "begin",
    messages.Poll: "turn",
    messages.ReleaseChunks: "leave",
    messages.ProgressReport: "found",
    messages.Granted: "Granted",
    messages.Wait: "Wait",
    messages.AskProgress: "Ask",
    messages.Over: "Over",
    messages.Failed: "Failed",
    messages.Rejoin: "Anew",
    messages.Differs: "Differs",
    messages.Done: "Done",
}
_REPLIES: dict[str, Any] = {name: kind for kind, name in _NAMES.items()}
_FIELDS = {"incarnation": "life", "leases_revoked": "is_robbed"}
_ATTRIBUTES = {name: field for field, name in _FIELDS.items()}
# Facts that are more than plain values.
_PARTS: dict[str, Callable[[Any], Any]] = {
    "leases": lambda leases: tuple(messages.ChunkLease(*lease) for lease in leases),
    "aside": lambda aside: tuple(messages.FailedChunk(*one) for one in aside),
    "held": lambda held: messages.PassPlan(**held),
}


def reply_from(answer: Mapping[str, Any]) -> messages.Reply:
    """The reply that `DispatcherService.answer` gave as JSON."""
    facts = {
        _ATTRIBUTES.get(name, name): _PARTS[name](fact) if name in _PARTS else fact
        for name, fact in answer.items()
    }
    reply: messages.Reply = _REPLIES[facts.pop("is")](**facts)
    return reply


def _facts_of(message: messages.Event | messages.Reply) -> dict[str, Any]:
    return {_FIELDS.get(name, name): fact for name, fact in asdict(message).items()}


def _seen(question: Mapping[str, Any]) -> dict[int, int]:
    return {int(number): _int(records) for number, records in question["seen"].items()}


def _int(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no number")
    return value
