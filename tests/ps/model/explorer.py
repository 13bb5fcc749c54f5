"""Looks at every world within bounds, breadth first, and says what is wrong in the first bad one.

Symmetric worlds are looked at once: with two clients, the one is renamed to the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from paddock.errors import PaddockError
from paddock.ps.replication.state import ReplicaRole, Stage
from ps.model.world import WITNESS, Mail, Model, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HEAL_ROUNDS = 40
W = TypeVar("W")


class Outcome(NamedTuple):
    """What a search saw. complaint "": nothing wrong. is_whole: no world within bounds is left."""

    worlds: int
    steps: int
    healed: int
    is_whole: bool
    complaint: str
    trace: tuple[str, ...]


def complaint_about(world: World, *, reads: bool) -> str:
    """Which invariant a world breaks. reads: also that no server answers with old values."""
    by_identity = {server.member.server: server for server in world.servers}
    for at, server in enumerate(world.servers):
        applied = [record for record in server.log if len(record) == 3]
        if len(set(applied)) != len(applied):
            return f"server {at} applied a push twice: {server.log}"
        if reads and server.is_up and server.member.may_serve(now=world.now):
            missing = world.answered - set(applied)
            if missing:
                return f"server {at} serves without acknowledged {sorted(missing)}"
    for identity in world.register.in_sync:
        if identity in by_identity:
            missing = world.answered - set(by_identity[identity].log)
            if missing:
                return (
                    f"server {identity} may be promoted, but lacks acknowledged {sorted(missing)}"
                )
    terms = [term for term, _ in world.answerers]
    if len(set(terms)) != len(terms):
        return f"two servers acknowledged in one term: {sorted(world.answerers)}"
    return ""


def healed(model: Model, world: World) -> str:
    """Why a world, left alone by faults, does not come to rest with every push applied once."""
    identities = {server.member.server for server in world.servers}
    if not identities & set(world.register.in_sync):
        return ""  # the only logs with all records were lost with the power: a person decides
    world = world._replace(mail=frozenset())
    patient = Model(model.rules, model.bounds.__class__(**{
        **vars(model.bounds), "sessions": 10**6, "terms": 10**6, "delayed": 0, "crashes": 0,
    }))  # fmt: skip
    wanted = {
        (client, incarnation, sequence)
        for client, incarnation in enumerate(world.incarnations)
        for sequence in range(1, model.bounds.pushes + 1)
    }
    for _ in range(HEAL_ROUNDS):
        world = _healing_round(patient, world)
        # Not its length: it may name a server whose log went with the power.
        if wanted <= world.answered and set(world.register.in_sync) == identities:
            break
    else:
        return f"comes to no rest: answered {sorted(world.answered)}, {world}"
    logs = [server.log for server in world.servers]
    if logs[0] != logs[1]:
        return f"in sync with different logs: {logs}"
    applied = {record for record in logs[0] if len(record) == 3}
    if not world.answered <= applied:
        return f"lost {sorted(world.answered - applied)}"
    return complaint_about(world, reads=False)


def _healing_round(model: Model, world: World) -> World:
    for at, server in enumerate(world.servers):
        if not server.is_up:
            world = model.restart(world, at)
    if model.bounds.now_max == 0:
        for label, after in model.times(world):
            if label == "expire" and not any(
                s.member.role is ReplicaRole.PRIMARY for s in world.servers
            ):
                world = after
    else:
        world = model.settled(world._replace(now=world.now + 1))
    for at in range(2):
        # Connections that broke, or lost an Ack, are noticed (by the silence, at the latest).
        if not _is_joined(world) or _is_silent(world):
            world = model.cut(world, at)
    for at in range(2):
        world = model.asked(world, at)
    for at in range(2):
        member = world.servers[at].member
        other = world.servers[1 - at].member
        is_alone = member.role is ReplicaRole.REPLICA and member.stage is Stage.ALONE
        if is_alone and other.role is ReplicaRole.PRIMARY:
            world = model.joined(world, at)
    for _, after in list(model.pushes(world))[:1]:
        world = after
    for _label, after in _fresh_pushes(model, world):
        world = after
    while True:
        streamed = [after for label, after in model.streams(world) if "at once" in label]
        if not streamed:
            return world
        world = streamed[0]


def _fresh_pushes(model: Model, world: World) -> list[tuple[str, World]]:
    """Every unanswered push, one after the other, to whoever serves."""
    steps = []
    for client, incarnation in enumerate(world.incarnations):
        for sequence in range(1, model.sent_up_to(world, client, incarnation) + 1):
            for at, server in enumerate(world.servers):
                if server.is_up and server.member.may_serve(now=world.now):
                    for label, after in model.push(world, at, (client, incarnation, sequence)):
                        world = after
                        steps.append((label, world))
    return steps


def _is_silent(world: World) -> bool:
    """Whether a primary waits for an Ack that was lost; at the start of a round all is streamed."""
    members = [server.member for server in world.servers if server.member.peer]
    return any(one.in_sync_candidate == 0 or one.is_replica_silent(now=10**6) for one in members)


def _is_joined(world: World) -> bool:
    one, two = (server.member for server in world.servers)
    roles = {one.role, two.role}
    return len(roles) == 2 and one.session == two.session and Stage.FOLLOWING in (
        one.stage, two.stage,
    ) and one.peer + two.peer > 0  # fmt: skip


def reached(model: Model, script: tuple[str, ...]) -> World:
    """The world after steps, each named by how its label begins."""
    world = model.first()
    for wanted in script:
        steps = dict(reversed(list(model.after(world))))  # of two with one label, the first
        found = [label for label in reversed(steps) if label.startswith(wanted)]
        assert found, f"{wanted!r} is none of {sorted(steps)}"
        world = steps[found[0]]
    return world


def explored(
    model: Model,
    *,
    worlds_max: int,
    script: tuple[str, ...] = (),
    heal_every: int = 0,
    reads: bool = False,
) -> Outcome:
    """Searches breadth first until all worlds are seen, one is bad, or worlds_max are seen.

    script: what happens first. heal_every: of so many worlds one is left alone by faults, and
    must come to rest.
    """
    mended = 0

    def judge(world: World, count: int) -> str:
        nonlocal mended
        complaint = complaint_about(world, reads=reads)
        if not complaint and heal_every and count % heal_every == 0:
            mended += 1
            complaint = healed(model, world)
        return complaint

    def after(world: World) -> Iterator[tuple[str, World]]:
        return ((label, canonical(one)) for label, one in model.after(world))

    first = canonical(reached(model, script))
    return searched(first, after, judge, worlds_max=worlds_max)._replace(healed=mended)


def searched(
    first: W,
    after: Callable[[W], Iterable[tuple[str, W]]],
    judge: Callable[[W, int], str],
    *,
    worlds_max: int,
) -> Outcome:
    """The same for worlds of any kind. judge: what is wrong with the n-th world; "" is nothing."""
    parents: dict[W, tuple[W, str] | None] = {first: None}
    layer, steps = [first], 0
    while layer:
        found: list[W] = []
        for world in layer:
            try:
                for label, one in after(world):
                    steps += 1
                    if one in parents:
                        continue
                    parents[one] = (world, label)
                    complaint = judge(one, len(parents))
                    if complaint:
                        trace = trace_of(parents, one)
                        return Outcome(len(parents), steps, 0, False, complaint, trace)
                    found.append(one)
                    if len(parents) >= worlds_max:
                        return Outcome(len(parents), steps, 0, False, "", ())
            except PaddockError as error:  # a server that stops rather than lose what it answered
                trace = trace_of(parents, world)
                return Outcome(len(parents), steps, 0, False, f"halts: {error}", trace)
        layer = found
    return Outcome(len(parents), steps, 0, True, "", ())


def trace_of(parents: dict[W, tuple[W, str] | None], world: W) -> tuple[str, ...]:
    """What happened on the way to a world."""
    labels: list[str] = []
    step = parents[world]
    while step is not None:
        labels.append(step[1])
        step = parents[step[0]]
    return tuple(reversed(labels))


def canonical(world: World) -> World:
    """One world for all that differ in the names of clients only."""
    if len(world.incarnations) != 2:
        return world
    other = _renamed(world)
    return min(world, other, key=lambda one: hash((one.answered, one.servers, one.incarnations)))


def _renamed(world: World) -> World:
    """The world with clients 0 and 1 exchanged."""

    def push(record: tuple) -> tuple:
        return (1 - record[0], *record[1:]) if len(record) == 3 else record

    def mail(one: Mail) -> Mail:
        record = getattr(one.body, "record", None)
        if one.to == WITNESS or record is None:
            return one
        body = type(one.body)(
            one.body.session, one.body.term, one.body.position, push(record), one.body.begins
        )
        return one._replace(body=body)

    servers = tuple(
        server._replace(
            log=tuple(push(record) for record in server.log),
            waiting=frozenset((end, push(one)) for end, one in server.waiting),
        )
        for server in world.servers
    )
    return world._replace(
        servers=servers,
        mail=frozenset(mail(one) for one in world.mail),
        incarnations=(world.incarnations[1], world.incarnations[0]),
        answered=frozenset(push(one) for one in world.answered),
    )
