"""A pair, its witness and its clients as one hashable value, and every next value of it.

The transitions are the real ones: Register, Member and Windows decide; here is only what a shell
around them does (log, send, answer), the network (which loses, repeats, delays and reorders) and
the faults. A server's applied state is a fold over its log, so the log stands for both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from paddock.ps.replication.lease import LeaseReply, LeaseRequest, Register, Timing, restored
from paddock.ps.replication.state import (
    Ack,
    Action,
    Append,
    AskWitness,
    BeginTerm,
    Deposed,
    Follow,
    FollowAccepted,
    FollowRefused,
    ReplicaRole,
    ReplicaState,
    Restore,
    SendMessage,
    Stage,
    StoreRecord,
    Truncate,
    recovered,
)
from paddock.ps.wire.windows import SequenceStatus, Windows

if TYPE_CHECKING:
    from collections.abc import Iterator

TICKS = Timing(
    lease_seconds=2, renew_seconds=1, retry_seconds=1, silence_seconds=1, drift=0.0
)  # a second is one tick of the model
Push = tuple[int, int, int]  # client, incarnation, sequence
Record = tuple[str, int] | Push  # ("generation", term) or a push


@dataclass(frozen=True)
class Rules:
    """The code under test; a mutation replaces one part of it."""

    member: type[ReplicaState] = ReplicaState
    register: type[Register] = Register
    windows: type[Windows] = Windows
    restart_waits: bool = True  # the witness, for one lease time
    replica_logs_first: bool = True  # before its Ack
    logs_first: bool = True  # the primary, before the answer
    repeats_wait: bool = True  # a repeat is answered when the log up to now may be


@dataclass(frozen=True)
class Bounds:
    """How much may happen. A network of `delayed` messages keeps each as long as it likes.

    now_max 0: clocks are not trusted; a lease may expire at the witness at any time and lasts
    for ever at its holder. Otherwise all clocks are one, which goes to now_max.
    """

    clients: int = 1
    pushes: int = 2
    window: int = 2
    crashes: int = 1
    power_losses: int = 0
    client_restarts: int = 0
    witness_restarts: int = 0
    cuts: int = 1
    sessions: int = 3
    terms: int = 3
    delayed: int = 1
    now_max: int = 0
    near: int = 1


class Haste(Enum):
    """Which of the messages that follow from a message arrive at once; the others are delayed."""

    ALL = "at once"
    TELLS = "with a slow witness"
    NONE = "slowly"


class Server(NamedTuple):
    """is_up False: only the log counts. sent: the next position to stream."""

    member: ReplicaState
    log: tuple[Record, ...] = ()
    is_up: bool = True
    sent: int = 0
    waiting: frozenset[tuple[int, Push]] = frozenset()


class Mail(NamedTuple):
    """A message under way. to: index of a server, or WITNESS."""

    sender: int
    to: int
    body: object


class World(NamedTuple):
    """One state. used: crashes, power losses, client restarts, witness restarts, cuts, sessions."""

    servers: tuple[Server, ...]
    register: Register
    mail: frozenset[Mail] = frozenset()
    incarnations: tuple[int, ...] = (1,)
    answered: frozenset[Push] = frozenset()
    answerers: frozenset[tuple[int, int]] = frozenset()
    used: tuple[int, ...] = (0, 0, 0, 0, 0, 0)
    now: int = 0


CRASH, POWER, CLIENT, WITNESS_RESTART, CUT, SESSION = range(6)
WITNESS = 2
Step = tuple[str, World]


@lru_cache(maxsize=100_000)
def windows_of(kind: type[Windows], log: tuple[Record, ...]) -> Windows:
    """The dedupe windows after a log."""
    windows = kind()
    for record in log:
        if len(record) == 3:
            windows.mark_applied(*record)
    return windows


def history_of(log: tuple[Record, ...]) -> tuple[tuple[int, int], ...]:
    """Where each term of a log begins."""
    return tuple((r[1], at) for at, r in enumerate(log) if len(r) == 2)


class Model:
    """Rules within bounds: gives the first world, and what may follow a world."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules = rules
        self.bounds = bounds

    # ------------------------------------------------------------------------ the beginning

    def first(self) -> World:
        """A primary and its replica, in sync, with nothing pushed yet."""
        members = [
            self.rules.member(
                server=at + 1, endpoint=f"s{at}", is_first=at == 0, timing=TICKS,
                max_lag=self.bounds.near,
            )
            for at in range(2)
        ]  # fmt: skip
        world = World(
            tuple(Server(member) for member in members),
            self.rules.register(),
            incarnations=(1,) * self.bounds.clients,
        )
        world = self.joined(self.asked(self.asked(world, 0), 1), 1)
        assert world.register.in_sync == (1, 2), world
        return world._replace(used=(0,) * 6)

    def asked(self, world: World, at: int) -> World:
        """After one undisturbed exchange of a server with the witness."""
        return next(after for label, after in self.asks(world, at) if label.startswith("ask"))

    def joined(self, world: World, at: int) -> World:
        """After a replica's connection, undisturbed until it has everything."""
        world = self.connect(world, at)
        for _ in range(50):
            streamed = [after for label, after in self.streams(world) if "at once" in label]
            if not streamed:
                break
            world = streamed[0]
        return world

    # --------------------------------------------------------------------------- next worlds

    def after(self, world: World) -> Iterator[Step]:
        """Every next world, with what happened."""
        for at, server in enumerate(world.servers):
            if server.is_up:
                yield from self.asks(world, at)
                yield from self.stops(world, at)
                if server.member.role is ReplicaRole.REPLICA and server.member.stage is Stage.ALONE:
                    if world.used[SESSION] < self.bounds.sessions:
                        for haste in Haste:
                            label = f"connect {at} {haste.value}"
                            yield label, self.connect(world, at, haste)
                elif world.used[CUT] < self.bounds.cuts:
                    for haste in (Haste.ALL, Haste.NONE):
                        yield f"cut {at} {haste.value}", self.cut(spend(world, CUT), at, haste)
            else:
                yield f"restart {at}", self.restart(world, at)
        yield from self.streams(world)
        yield from self.pushes(world)
        for mail in world.mail:
            label = f"late {type(mail.body).__name__} to {mail.to}"
            rest = world._replace(mail=world.mail - {mail})
            yield label, self.deliver(rest, mail)
            yield f"{label}, again later", self.deliver(world, mail)
            if len(world.mail) == self.bounds.delayed:
                yield f"lose {type(mail.body).__name__}", rest
        yield from self.times(world)
        for client, incarnation in enumerate(world.incarnations):
            if world.used[CLIENT] < self.bounds.client_restarts:
                incarnations = replaced(world.incarnations, client, incarnation + 1)
                yield (
                    f"client {client} restarts",
                    spend(world, CLIENT)._replace(incarnations=incarnations),
                )

    def times(self, world: World) -> Iterator[Step]:
        """Time passes; or, where clocks are not trusted, a lease expires."""
        if self.bounds.now_max == 0:
            if world.register.expiry > 0 and world.register.term < self.bounds.terms:
                expired = rebuilt(self.rules.register, world.register, expiry=0.0)
                yield "expire", world._replace(register=expired)
        elif world.now < self.bounds.now_max:
            yield "tick", self.settled(world._replace(now=world.now + 1))
        if world.used[WITNESS_RESTART] < self.bounds.witness_restarts:
            kept = restored(asdict(world.register), now=world.now, timing=TICKS)
            expiry = kept.expiry if self.rules.restart_waits else float(world.now)
            register = rebuilt(self.rules.register, kept, expiry=expiry)
            yield "witness restarts", spend(world, WITNESS_RESTART)._replace(register=register)

    def asks(self, world: World, at: int) -> Iterator[Step]:
        """A server and the witness: at once, answer delayed, request delayed."""
        member, actions = world.servers[at].member.seek(now=world.now)
        (request,) = [action.request for action in actions if isinstance(action, AskWitness)]
        if request.ask.value == "take" and world.register.term >= self.bounds.terms:
            return
        sent = with_member(world, at, member)
        mail = Mail(at, WITNESS, request)
        yield f"ask {at} {request.ask.value}", self.deliver(sent, mail, haste=Haste.ALL)
        if len(world.mail) < self.bounds.delayed:
            yield f"slow answer {at} {request.ask.value}", self.deliver(sent, mail)
            yield f"slow request {at} {request.ask.value}", self.post(sent, mail)

    def stops(self, world: World, at: int) -> Iterator[Step]:
        """A server dies: the process, or the power with what its log had not on disk."""
        if world.used[CRASH] < self.bounds.crashes:
            yield f"kill {at}", crashed(spend(world, CRASH), at)
        if world.used[POWER] < self.bounds.power_losses:
            dead = crashed(spend(world, POWER), at)
            log = dead.servers[at].log
            for kept in range(len(log)):
                # Its log is doubtful: it comes back under another identity (lease.py).
                member = self.rules.member(
                    server=dead.servers[at].member.server + 10, endpoint=f"s{at}", timing=TICKS,
                    max_lag=self.bounds.near,
                )  # fmt: skip
                server = dead.servers[at]._replace(log=log[:kept], member=member)
                yield f"power loss {at}", with_server(dead, at, server)

    def restart(self, world: World, at: int) -> World:
        server = world.servers[at]
        fresh = self.rules.member(
            server=server.member.server, endpoint=f"s{at}", is_first=False, timing=TICKS,
            max_lag=self.bounds.near,
        )  # fmt: skip
        member = recovered(fresh, end=len(server.log), history=history_of(server.log))
        return with_server(world, at, Server(member, server.log))

    def connect(self, world: World, at: int, haste: Haste = Haste.ALL) -> World:
        world = spend(world, SESSION)
        member, actions = world.servers[at].member.connected(world.used[SESSION])
        return self.perform(with_member(world, at, member), at, actions, haste=haste)

    def cut(self, world: World, at: int, haste: Haste = Haste.ALL) -> World:
        member = world.servers[at].member
        after, actions = member.lost(member.session, now=world.now)
        return self.perform(with_member(world, at, after), at, actions, haste=haste)

    def streams(self, world: World) -> Iterator[Step]:
        """The primary's next record: at once, its Ack delayed, itself delayed; replica may die."""
        for at, server in enumerate(world.servers):
            member, to = server.member, 1 - at
            if not (server.is_up and member.role is ReplicaRole.PRIMARY and member.peer):
                continue
            if server.sent >= len(server.log):
                continue
            record = server.log[server.sent]
            begins = record[1] if len(record) == 2 else 0
            body = Append(member.session, member.term, server.sent, record, begins)
            moved = with_server(world, at, server._replace(sent=server.sent + 1))
            mail = Mail(at, to, body)
            yield (
                f"record {server.sent} of {at} at once",
                self.deliver(moved, mail, haste=Haste.ALL),
            )
            if len(world.mail) < self.bounds.delayed:
                yield f"record {server.sent} of {at}, slow Ack", self.deliver(moved, mail)
                yield f"slow record {server.sent} of {at}", self.post(moved, mail)
            if world.servers[to].is_up and world.used[CRASH] < self.bounds.crashes:
                dying = self.deliver(spend(moved, CRASH), mail, haste=Haste.ALL, dies=True)
                yield f"record {server.sent} of {at}, {to} dies in it", dying

    # ------------------------------------------------------------------------------- clients

    def pushes(self, world: World) -> Iterator[Step]:
        """Any push that a client may have sent arrives at any server, at any time and again."""
        for client, newest in enumerate(world.incarnations):
            for incarnation in range(1, newest + 1):
                for sequence in range(1, self.sent_up_to(world, client, incarnation) + 1):
                    push = (client, incarnation, sequence)
                    for at, server in enumerate(world.servers):
                        if server.is_up and server.member.may_serve(now=world.now):
                            yield from self.push(world, at, push)

    def sent_up_to(self, world: World, client: int, incarnation: int) -> int:
        """The last sequence a client may have sent: its window goes on from what is answered."""
        done = 0
        while (client, incarnation, done + 1) in world.answered:
            done += 1
        return min(self.bounds.pushes, done + self.bounds.window)

    def push(self, world: World, at: int, push: Push) -> Iterator[Step]:
        """What a shell does with a push: judge, log, apply, wait, answer."""
        server = world.servers[at]
        verdict = windows_of(self.rules.windows, server.log).check(*push)
        label = f"push {push} to {at}"
        if verdict is SequenceStatus.REPEAT:
            if self.rules.repeats_wait:
                waits = server.waiting | {(server.member.end, push)}
                world = with_server(world, at, server._replace(waiting=waits))
                yield label + " (repeat)", self.settled(world)
            else:
                yield label + " (repeat)", answer(world, at, push)
        if verdict is not SequenceStatus.FRESH:
            return
        member, _ = server.member.appended(now=world.now)
        logged = server._replace(
            member=member, log=(*server.log, push), waiting=server.waiting | {(member.end, push)}
        )
        after = self.settled(with_server(world, at, logged))
        yield label, after
        if world.used[CRASH] < self.bounds.crashes:
            # Dies between logging and answering, or, by the mutation, the other way round.
            answered = after.answered if not self.rules.logs_first else world.answered
            log = logged.log if self.rules.logs_first else server.log
            dead = crashed(spend(world, CRASH)._replace(answered=answered), at)
            dead = with_server(dead, at, dead.servers[at]._replace(log=log))
            yield label + f", {at} dies in it", dead

    def settled(self, world: World) -> World:
        """Answers all that may be answered."""
        for at, server in enumerate(world.servers):
            if server.is_up:
                for end, push in server.waiting:
                    if server.member.acknowledges(end, now=world.now):
                        waits = world.servers[at].waiting - {(end, push)}
                        rest = world.servers[at]._replace(waiting=waits)
                        world = answer(with_server(world, at, rest), at, push)
        return world

    # ------------------------------------------------------------------------------ messages

    def post(self, world: World, mail: Mail) -> World:
        """Under way; lost when too many are."""
        if len(world.mail) >= self.bounds.delayed:
            return world
        return world._replace(mail=world.mail | {mail})

    def deliver(
        self, world: World, mail: Mail, *, haste: Haste = Haste.NONE, dies: bool = False
    ) -> World:
        """The receiver acts, and what it sends arrives as `haste` says."""
        body = mail.body
        if mail.to == WITNESS:
            assert isinstance(body, LeaseRequest)
            register, reply = world.register.answer(body, now=world.now, timing=TICKS)
            if self.bounds.now_max == 0:  # only whether it expired counts, and at the witness
                expiry = min(1.0, register.expiry)
                register = rebuilt(self.rules.register, register, expiry=expiry)
            world = world._replace(register=register)
            answer_mail = Mail(WITNESS, mail.sender, reply)
            if haste is Haste.ALL:
                return self.deliver(world, answer_mail, haste=haste)
            return self.post(world, answer_mail)
        server = world.servers[mail.to]
        if not server.is_up:
            return world
        member, actions = received(server.member, body, world.now)
        world = with_member(world, mail.to, member)
        if isinstance(body, Follow) and actions and isinstance(actions[0], SendMessage):
            start = actions[0].message
            if isinstance(start, FollowAccepted):
                moved = world.servers[mail.to]._replace(sent=start.common)
                world = with_server(world, mail.to, moved)
        return self.perform(world, mail.to, actions, haste=haste, dies=dies)

    def perform(
        self, world: World, at: int, actions: list[Action], *, haste: Haste, dies: bool = False
    ) -> World:
        """What a shell does with actions, in their order. dies: after the first one."""
        if not self.rules.replica_logs_first:
            actions = sorted(actions, key=lambda action: isinstance(action, StoreRecord))
        sends: list[Mail] = []
        for number, action in enumerate(actions):
            if dies and number == 1:
                world = crashed(world, at)
                break
            server = world.servers[at]
            if isinstance(action, StoreRecord):
                assert action.position == len(server.log), (action, server)
                world = with_server(world, at, server._replace(log=(*server.log, action.record)))
            elif isinstance(action, Truncate | Restore):
                assert isinstance(action, Truncate), "the model's primaries keep their logs"
                world = with_server(world, at, server._replace(log=server.log[: action.end]))
            elif isinstance(action, BeginTerm):
                member, _ = server.member.appended(now=world.now)
                log = (*server.log, ("generation", action.term))
                world = with_server(world, at, Server(member, log))
            elif isinstance(action, Deposed):
                world = with_server(world, at, server._replace(waiting=frozenset()))
            elif isinstance(action, AskWitness):
                sends.append(Mail(at, WITNESS, action.request))
            elif isinstance(action, SendMessage):
                sends.append(Mail(at, 1 - at, action.message))
        for mail in sends:
            if haste is Haste.ALL or (haste is Haste.TELLS and mail.to != WITNESS):
                world = self.deliver(world, mail, haste=haste)
            else:
                world = self.post(world, mail)
        return self.settled(world)


@lru_cache(maxsize=100_000)
def received(member: ReplicaState, body: object, now: float) -> tuple[ReplicaState, list[Action]]:
    """The member after a message of any kind; heard_at only matters to `tick`, not called here."""
    after, actions = _received(member, body, now=now)
    return replace(after, heard_at=0, asked_at=0), actions


def _received(
    member: ReplicaState, body: object, *, now: float
) -> tuple[ReplicaState, list[Action]]:
    if isinstance(body, LeaseReply):
        return member.replied(body, now=now)
    if isinstance(body, Follow):
        return member.followed(body, first=0, now=now)
    if isinstance(body, FollowAccepted):
        return member.started(body)
    if isinstance(body, Append):
        return member.stored(body)
    if isinstance(body, Ack):
        return member.acknowledged(body, now=now)
    assert isinstance(body, FollowRefused)
    return member.refused(body)


# ------------------------------------------------------------------------------ small changes


def replaced(values: tuple, at: int, value: object) -> tuple:
    return (*values[:at], value, *values[at + 1 :])


def with_server(world: World, at: int, server: Server) -> World:
    return world._replace(servers=replaced(world.servers, at, server))


def with_member(world: World, at: int, member: ReplicaState) -> World:
    return with_server(world, at, world.servers[at]._replace(member=member))


def spend(world: World, what: int) -> World:
    return world._replace(used=replaced(world.used, what, world.used[what] + 1))


def answer(world: World, at: int, push: Push) -> World:
    term, server = world.servers[at].member.term, world.servers[at].member.server
    return world._replace(
        answered=world.answered | {push}, answerers=world.answerers | {(term, server)}
    )


def crashed(world: World, at: int) -> World:
    """Only log and identity stay."""
    server = world.servers[at]
    kept = type(server.member)(server=server.member.server)
    return with_server(world, at, Server(kept, server.log, is_up=False))


def rebuilt(kind: type[Register], register: Register, *, expiry: float) -> Register:
    """The register with another expiry, of the kind under test."""
    return kind(
        register.version, register.term, register.holder, register.endpoint, expiry,
        register.in_sync,
    )  # fmt: skip
