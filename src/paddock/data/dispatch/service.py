"""The dispatcher as a service of server 0: events out of JSON, changes into the server's notes.

It holds nothing between two questions: the dispatcher is made from the notes each time. So it is
the same after a restart, on the replica that takes over, and after a checkpoint is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paddock.data.dispatch import messages
from paddock.data.dispatch.state import Dispatch
from paddock.errors import UsageError
from paddock.ps.wire.values import value_from

if TYPE_CHECKING:
    from paddock.ps.server.services import ServiceContext

SERVICE = "data"
STREAMS_MAX = 100
NAME_LENGTH_MAX = 100
# A turn's leases get numbers above those that any past has given: so many for each record.
NUMBERS_A_RECORD = messages.LEASES_MAX


class DispatcherService:
    """Answers {"stream": name, "do": begin | turn | leave | found | forget | look, ...}."""

    def answer(
        self, who: tuple[int, int] | None, question: Mapping[str, Any], context: ServiceContext
    ) -> dict[str, Any]:
        """The reply, by its name. Raises UsageError."""
        name = str(question.get("stream", ""))
        of = f"{name}/"
        notes = {k.removeprefix(of): v for k, v in context.notes.items() if k.startswith(of)}
        known = {key.partition("/")[0] for key in context.notes}
        if not name or "/" in name or len(name) > NAME_LENGTH_MAX:
            raise UsageError(f"stream {name!r}", hint="a name without '/', of 1 to 100 letters")
        if name not in known and len(known) >= STREAMS_MAX:
            raise UsageError(f"stream {name!r}: there are {STREAMS_MAX} already", hint="use fewer")
        dispatch = Dispatch(notes, context.serial * NUMBERS_A_RECORD, context.past)
        if question.get("do") == "look" or who is None:
            return dispatch.describe()
        if question.get("do") == "forget":
            context.keep({f"{name}/{key}": None for key in notes})
            return {}
        event = event_from(who, question)
        aside = len(dispatch.aside)
        reply = dispatch.handle(event)
        if isinstance(reply, messages.Wait):  # Early enough to ask which workers are gone.
            gone = list(filter(context.is_gone, reply.holders))
            for number in gone:
                dispatch.handle(messages.WorkerLost(number))
                context.say(f"stream {name}: worker {number} is gone, its chunks are given on")
            reply = dispatch.handle(event) if gone else reply
        changes = dispatch.changes()
        if changes:
            context.keep({f"{name}/{key}": value for key, value in changes.items()})
        for one in dispatch.aside[aside:]:
            context.say(
                f"stream {name}: chunk {one.chunk} is set aside at record {one.start} of it, in "
                f"pass {one.pass_}: {one.reason}"
            )
        return {"is": _NAMES[type(reply)], **_facts(reply)}


# The names on the wire; servers and workers of other versions know them.
_EVENTS: dict[str, type] = {
    "begin": messages.RegisterWorker,
    "turn": messages.Poll,
    "leave": messages.ReleaseChunks,
    "found": messages.ProgressReport,
}
_REPLIES: dict[str, type] = {
    "Granted": messages.Granted,
    "Wait": messages.Wait,
    "Ask": messages.AskProgress,
    "Over": messages.Over,
    "Failed": messages.Failed,
    "Anew": messages.Rejoin,
    "Differs": messages.Differs,
    "Done": messages.Done,
}
_NAMES = {kind: name for name, kind in (_EVENTS | _REPLIES).items()}
_FIELDS = {"incarnation": "life", "leases_revoked": "is_robbed"}
_ATTRIBUTES = {name: field for field, name in _FIELDS.items()}
MAY_BE_NEGATIVE = ("seed", "aside")


def event_from(who: tuple[int, int], question: Mapping[str, Any]) -> messages.Event:
    """The event of a question. Raises UsageError."""
    do = question.get("do")
    kind = _EVENTS.get(str(do))
    if kind is None:
        raise UsageError(f"the dispatcher was asked to {do!r}", hint=", ".join([*_EVENTS, "look"]))
    facts = _attributes(question)
    if kind is not messages.ProgressReport:  # It is about another worker.
        facts["worker"], facts["incarnation"] = who
    try:
        _refuse_negative(facts)
        event: messages.Event = value_from(kind, facts)
    except (TypeError, ValueError) as error:
        raise UsageError(f"this is no question to the dispatcher: {error!r}") from error
    return event


def question_of(event: messages.Event) -> dict[str, Any]:
    """The event as JSON: `event_from` reads it."""
    return {"do": _NAMES[type(event)], **_facts(event)}


def reply_from(answer: Mapping[str, Any]) -> messages.Reply:
    """The reply that `DispatcherService.answer` gave as JSON."""
    reply: messages.Reply = value_from(_REPLIES[answer["is"]], _attributes(answer))
    return reply


def _facts(message: messages.Event | messages.Reply) -> dict[str, Any]:
    return {_FIELDS.get(name, name): fact for name, fact in asdict(message).items()}


def _attributes(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {_ATTRIBUTES.get(name, name): fact for name, fact in facts.items()}


def _refuse_negative(value: object) -> None:
    """Raises: ValueError for a number below 0 where all are counts."""
    if isinstance(value, dict):
        value = [fact for name, fact in value.items() if name not in MAY_BE_NEGATIVE]
    if isinstance(value, list | tuple):
        for one in value:
            _refuse_negative(one)
    elif isinstance(value, int) and value < 0:
        raise ValueError(f"{value!r} is no number")
