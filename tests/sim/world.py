"""One simulated world: real Membership and Supervisors; time, network, processes are made up.

Fake time is a heap of events. A connection keeps its order as TCP does; different connections
do not. The members behave as agent/member.py, client.py and server.py do: leases, self-fencing at
0.92 of the lease, joining again. What must hold is checked while it runs (``expect``) and at the
end (``check_end``).
"""

from __future__ import annotations

import heapq
from random import Random
from typing import TYPE_CHECKING

from paddock.core import membership_words as m
from paddock.core import supervisor as s
from paddock.core.exits import Exit, find_culprit
from paddock.core.hosts import Host
from paddock.core.membership import Membership
from paddock.core.plan import make_plan, plan_bytes
from paddock.core.value import replace
from sim.truth import Root, blame_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.core.plan import Plan
    from paddock.core.policy import Verdict
    from sim.spec import Chaos, Spec

FENCE_SHARE = 0.92  # agent/client.py
REJOIN_GRACE_SECONDS = 2.0  # agent/network.py
GUARDIAN_SECONDS = 0.9  # kill -9 of a launcher: nothing left after 1 s
EVIDENCE_SECONDS = 0.03  # local/node.py
EVENTS_MAX = 300_000
STUCK_SECONDS = 60.0
Key = tuple[str, int]


class BrokenWorldError(AssertionError):
    """Something that must hold does not."""


class Proc:
    """A process. way: what it does on SIGTERM."""

    __slots__ = ("alive", "attempt", "error_at", "is_dying", "is_stuck", "key", "node", "way")

    def __init__(self, node: Node, attempt: int, key: Key, way: str) -> None:
        self.node = node
        self.attempt = attempt
        self.key = key
        self.way = way
        self.alive = True
        self.error_at = 0.0
        self.is_dying = False
        self.is_stuck = False  # in D state: not even SIGKILL ends it for a while


class Connection:
    """One TCP connection of a member: in order, late, and silent when cut."""

    def __init__(self, world: World, node: Node, coordinator: Coordinator, number: int) -> None:
        self.world = world
        self.node = node
        self.coordinator = coordinator
        self.number = number
        self.is_member_open = True
        self.is_coordinator_open = True
        self._last = {"in": 0.0, "out": 0.0}  # in: to the member
        self._held: dict[str, list[Callable[[], None]]] = {"in": [], "out": []}

    def post(self, way: str, call: Callable[[], None]) -> None:
        """Deliver ``call`` at the other end."""
        if way in self.node.cuts:
            self._held[way].append(call)
            return
        world = self.world
        delay = 0.0 if self.node is self.coordinator.node else world.delay()
        at = max(world.now + delay, self._last[way])
        self._last[way] = at
        world.at(at, call)

    def heal(self, way: str) -> None:
        """What was held back arrives now, in order."""
        held, self._held[way] = self._held[way], []
        for call in held:
            self.post(way, call)

    def to_member(self, what: str, *content: object) -> None:
        def deliver() -> None:
            if self.is_member_open and self.node.connection is self:
                getattr(self.node, "on_" + what)(*content)

        if self.is_coordinator_open:
            self.post("in", deliver)

    def to_coordinator(self, event: m.Event) -> None:
        def deliver() -> None:
            if self.is_coordinator_open:
                self.coordinator.feed(event)

        if self.is_member_open:
            self.post("out", deliver)

    def close_member(self) -> None:
        """The member's end is gone; the coordinator gets an EOF, if anything gets through."""
        if self.is_member_open:
            self.is_member_open = False
            self.post("out", lambda: self.coordinator.lose(self, "is gone (connection closed)"))

    def close_coordinator(self) -> None:
        """The coordinator's end is closed; the member gets an EOF after what was sent before."""
        if self.is_coordinator_open:
            self.is_coordinator_open = False
            self.post("in", lambda: self.node.on_closed(self))


class Coordinator:
    """agent/coordinator.py and server.py, without sockets."""

    def __init__(self, world: World, node: Node, *, first_attempt: int, awaited: int) -> None:
        self.world = world
        self.node = node
        self.machine = Membership(
            world.spec.job, world.now, first_attempt=first_attempt, awaited=awaited
        )
        self.first_attempt = first_attempt
        self.links: dict[int, Connection] = {}
        self.is_up = True
        self.is_lost = False
        self.verdict: Verdict | None = None
        self._events: list[m.Event] = []
        self._timer = 0

    def feed(self, event: m.Event) -> None:
        self._events.append(event)
        if len(self._events) > 1 or not self.is_up:
            return
        while self._events:
            event = self._events[0]
            world, machine = self.world, self.machine
            world.changes += isinstance(event, (m.Joined, m.LeaveAsked, m.Lost))
            if world.log is not None and not isinstance(event, m.TimerFired):
                world.note(f"-> {shown(event)}")
            exits = machine._exits
            attempt = machine.attempt
            actions = machine.handle(event, world.now)
            for action in actions:
                if world.log is not None and not isinstance(action, m.SetTimer):
                    world.note(f"   {machine.phase}: {shown(action)}")
                if isinstance(action, m.Note) and ": restarting (" in action.text:
                    world.check_blame(find_culprit(exits), attempt)
                self._do(action)
            self._events.pop(0)
        world.expect(
            machine.used_restarts <= world.spec.job.restart.max_restarts,
            f"{machine.used_restarts} restarts were used",
        )

    def lose(self, connection: Connection, how: str, *, is_silent: bool = False) -> None:
        if not connection.is_coordinator_open or not self.is_up:
            return
        connection.is_coordinator_open = False
        if self.links.pop(connection.number, None) is not None:
            now = self.world.now
            gone_at = 0.0 if is_silent else now + self.world.lease
            self.feed(m.Lost(connection.number, int(now * 1e9), how, gone_at))

    def _do(self, action: m.Action) -> None:
        if isinstance(action, m.Start):
            self._start(action)
        elif isinstance(action, m.Stop):
            for number in action.members:
                self._send(number, "halt", action.attempt, action.reason, action.hurry)
        elif isinstance(action, m.SetTimer):
            self._timer += 1
            if action.at is not None:
                mine = self._timer
                late = self.world.rng.choice((0.0, 0.0, 0.02))
                self.world.at(action.at + late, lambda: self._on_timer(mine))
        elif isinstance(action, m.Refuse):
            self._send(action.member, "turned", action.exit_code)
            self._drop(action.member)
        elif isinstance(action, m.Release):
            self._release(action)
        elif isinstance(action, m.Finish):
            self._finish(action.verdict)

    def _on_timer(self, mine: int) -> None:
        if mine == self._timer:
            self.feed(m.TimerFired())

    def _start(self, action: m.Start) -> None:
        world = self.world
        world.expect(action.attempt > world.started, f"attempt {action.attempt} starts again")
        world.started = action.attempt
        most = self.first_attempt + world.changes + self.machine.total_restarts
        world.expect(action.attempt <= most, f"attempt {action.attempt} came without a reason")

        world.places = {number: place for place, number in enumerate(action.members)}
        for node_rank, number in enumerate(action.members):
            link = self.links.get(number)
            if link is None or link.node.cuts or link.node.connection is not link:
                world.add_root(Root(world.now, node_rank, "cut"), action.attempt)

        def go() -> None:
            if not self.is_up or self.machine.attempt != action.attempt:
                return
            if self.machine.phase != "running":
                return
            for node_rank, number in enumerate(action.members):
                self._send(number, "begin", action.attempt, node_rank, action.hosts)

        if world.spec.fence_seconds:
            world.after(world.rng.uniform(0.0, world.spec.fence_seconds), go)
        else:
            go()

    def _release(self, action: m.Release) -> None:
        connection = self.links.get(action.member)
        self.world.changes += 1
        if connection is not None and action.verdict.kind == "fail":
            connection.node.is_expelled = True
        self._send(action.member, "over", action.verdict)
        self._drop(action.member)

    def _finish(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.world.check_verdict(verdict, self.machine)
        for number in list(self.links):
            self._send(number, "over", verdict)
        self.world.after(3.0, self._end)  # GOODBYE_SECONDS

    def _end(self) -> None:
        self.is_up = False
        for connection in list(self.links.values()):
            connection.close_coordinator()
        self.links.clear()

    def _send(self, number: int, what: str, *content: object) -> None:
        connection = self.links.get(number)
        if connection is not None:
            connection.to_member(what, *content)

    def _drop(self, number: int) -> None:
        connection = self.links.pop(number, None)
        if connection is not None:
            connection.close_coordinator()


class Node:
    """A host with its launcher: agent/member.py and client.py, local/node.py."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.name = f"n{number}"
        self.cuts: set[str] = set()
        self.cut_since: dict[str, float] = {}
        self.uncertainty = world.rng.choice((0.00005, 0.002, 0.02)) if number else 0.0
        self.clock_error = world.rng.uniform(-1.0, 1.0) * self.uncertainty
        self.launch_count = 0
        self.is_up = False
        self.connection: Connection | None = None
        self.connections: list[Connection] = []
        self.reset()

    def reset(self) -> None:
        """A fresh launcher."""
        self.launch_count += 1
        self.exit_code: int | None = None
        self.supervisor: s.Supervisor | None = None
        self.procs: dict[Key, Proc] = {}
        self.node_rank = 0
        self.verdict: Verdict | None = None
        self.signals = 0
        self.is_expelled = False
        self._timer = 0
        self._reports_until = 0.0
        self._deadline = 0.0

    # ------------------------------------------------------------- the link

    @property
    def lives(self) -> bool:
        """Its launcher runs."""
        return self.is_up and self.exit_code is None

    def launch(self) -> None:
        if self.lives:
            return
        self.reset()
        self.is_up = True
        self._deadline = self.world.now + self.world.spec.job.rendezvous.join_timeout_seconds
        self._connect()

    def _connect(self) -> None:
        if not self.lives or self.connection is not None:
            return
        world = self.world
        coordinator = world.coordinator
        if coordinator.is_up and coordinator.node.is_up and not self.cuts:
            self.connection = world.connect(self, coordinator)
            event = m.Joined(
                self.connection.number,
                self.host(),
                f"{self.name}/{self.launch_count}",
                self.number if world.spec.has_ranks else None,
                self is coordinator.node,
            )
            self.connection.to_coordinator(event)
            return
        if world.now >= self._deadline:
            self._end(124)
            return
        world.after(world.rng.uniform(0.05, 1.0), self._connect)

    def host(self) -> Host:
        job = self.world.spec.job
        slots = tuple((r.name, 0, r.count or 1) for r in job.roles)
        count = sum(c for _, _, c in slots)
        port = self.world.next_port(count + 4)
        return Host(
            self.name,
            f"10.0.{self.number // 250}.{self.number % 250 + 1}",
            slots=slots,
            ports=tuple(range(port, port + count)),
            service_ports=tuple(range(port + count, port + count + 4)),
        )

    def tell(self, event: m.Event) -> None:
        if self.connection is not None:
            self.connection.to_coordinator(event)

    def on_closed(self, connection: Connection) -> None:
        """EOF of the coordinator."""
        if self.connection is connection and self.lives:
            self.lose(is_silent=False)

    def lose(self, *, is_silent: bool) -> None:
        """The coordinator is gone."""
        connection, self.connection = self.connection, None
        if connection is None or not self.lives:
            return
        connection.close_member()
        job = self.world.spec.job
        self.world.say(f"{self.name} lost the coordinator{' (fenced)' if is_silent else ''}")
        # Its processes must be gone before its lease could be over at the other end.
        grace = min(job.grace_seconds, REJOIN_GRACE_SECONDS, self.world.lease / 2)
        self.halt("coordinator lost", hurry=is_silent, grace_seconds=grace)
        if not job.is_elastic:
            self.give_up(125)
            return
        self._deadline = self.world.now + job.elastic.timeout_seconds
        self._rejoin()

    def _rejoin(self) -> None:
        if not self.lives:
            return
        if self.supervisor is not None:
            self.world.after(0.1, self._rejoin)
        else:
            self._connect()

    # ------------------------------------------------------------ the orders

    def on_begin(self, attempt: int, node_rank: int, hosts: tuple[Host, ...]) -> None:
        world = self.world
        if self.verdict is not None or not self.lives:
            return
        world.expect(self.supervisor is None, f"{self.name}: attempt {attempt} on a running one")
        procs = world.plan_of(attempt, hosts)[node_rank]
        keys = [(p.role, p.rank) for p in procs]
        self.node_rank = node_rank
        self.supervisor = s.Supervisor(attempt, keys, grace_seconds=world.spec.job.grace_seconds)
        world.say(f"{self.name} starts attempt {attempt} as node {node_rank}")
        for key in keys:
            self.procs[key] = world.start_proc(self, attempt, key)

    def on_halt(self, attempt: int, reason: str, hurry: bool) -> None:
        if self.supervisor is not None:
            self.halt(reason, hurry=hurry)
        elif self.lives:
            self.tell(m.Stopped(self.connection_number(), attempt, self.host()))

    def connection_number(self) -> int:
        return self.connection.number if self.connection is not None else 0

    def on_over(self, verdict: Verdict) -> None:
        if not self.lives:
            return
        self.verdict = verdict
        if self.supervisor is not None:
            self.halt(verdict.reason)
        else:
            self._end(verdict.exit_code)

    def on_turned(self, exit_code: int) -> None:
        self._end(exit_code)

    def give_up(self, exit_code: int) -> None:
        if self.verdict is None:
            from paddock.core.policy import Verdict

            self.verdict = Verdict("fail", exit_code, "gave up")
        if self.supervisor is None:
            self._end(exit_code)

    def _end(self, exit_code: int) -> None:
        if self.exit_code is None:
            self.exit_code = exit_code
            self.world.say(f"{self.name} ends with {exit_code}")
        if self.connection is not None:
            self.connection.close_member()
            self.connection = None

    def on_signal(self, number: int) -> None:
        """The launcher gets a signal."""
        if not self.lives:
            return
        self.signals += 1
        self.world.say(f"{self.name} gets signal {number}")
        if self.signals > 1:
            self.halt("asked twice", hurry=True)
        if self.connection is None:
            self.give_up(128 + number)
        else:
            self.tell(m.LeaveAsked(self.connection.number, number, self.signals > 1))

    # --------------------------------------------------------- the processes

    def halt(self, reason: str, *, hurry: bool = False, grace_seconds: float | None = None) -> None:
        if self.supervisor is not None:
            order = s.StopOrdered(self.supervisor.attempt, reason, hurry, grace_seconds)
            self.feed(order)

    def feed(self, event: s.Event) -> None:
        if self.supervisor is None:
            return
        world = self.world
        for action in self.supervisor.handle(event, world.now):
            if isinstance(action, s.SignalGroup):
                world.signal_proc(self.procs[action.key], action.signal)
            elif isinstance(action, s.SetTimer):
                self._timer += 1
                mine = self._timer
                world.at(action.at, lambda mine=mine: self._on_timer(mine))
            elif isinstance(action, s.Report):
                self._report(action.exit)
            elif isinstance(action, s.Ended):
                self._timer += 1
                done_at = max(self._reports_until, world.now + world.rng.uniform(0.0, 0.01))
                world.at(done_at, lambda e=action: self._on_ended(e, self.launch_count))

    def _on_timer(self, mine: int) -> None:
        if mine == self._timer and self.is_up:
            self.feed(s.TimerFired())

    def _report(self, exit_: Exit) -> None:
        """Evidence is collected for a moment; the reports of one node may change places."""
        world = self.world
        error_at_ns = exit_.error_at_ns
        exit_ = replace(
            exit_,
            at_ns=exit_.at_ns + int(self.clock_error * 1e9),
            error_at_ns=error_at_ns + int(self.clock_error * 1e9) if error_at_ns else 0,
            uncertainty_ns=int(self.uncertainty * 1e9),
        )
        delay = 0.0 if exit_.ok else world.rng.uniform(0.0, EVIDENCE_SECONDS)
        self._reports_until = max(self._reports_until, world.now + delay)
        connection, launch = self.connection, self.launch_count

        def send() -> None:
            if connection is not None and launch == self.launch_count and self.is_up:
                connection.to_coordinator(m.ExitReported(connection.number, exit_))

        world.after(delay, send)

    def _on_ended(self, event: s.Ended, launch: int) -> None:
        if launch != self.launch_count or not self.is_up:
            return
        world = self.world
        alive = [p.key for p in self.procs.values() if p.alive]
        world.expect(not alive, f"{self.name} says that attempt {event.attempt} ended: {alive}")
        self.procs = {}
        self.supervisor = None
        if self.verdict is not None:
            self._end(self.verdict.exit_code)
        elif self.connection is not None:
            self.tell(m.Stopped(self.connection.number, event.attempt, self.host()))


class World:
    """Everything, at one time. run() raises BrokenWorldError when something does not hold."""

    def __init__(self, spec: Spec, *, log: list[str] | None = None) -> None:
        self.spec = spec
        self.log = log
        self.rng = Random(spec.seed + 1)
        self.now = 0.0
        self.lease = spec.job.rendezvous.lease_seconds
        self.started = -1
        self.changes = 0  # joins, leaves, losses and expulsions: each may cost an attempt
        self.places: dict[int, int] = {}  # node rank of each member, in the latest attempt
        self.alive: dict[int, set[Proc]] = {}
        self.roots: dict[int, list[Root]] = {}
        self.exited: dict[int, dict[Key, int]] = {}
        self.verdicts: list[Verdict] = []
        self.events = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._ports = 10_000
        self._numbers = 0
        self._plans: dict[int, tuple[bytes, Plan, list[list[object]]]] = {}
        self._crash: dict[int, tuple[float, int, str]] = {}
        self.nodes = [Node(self, i) for i in range(len(spec.joins))]
        self.coordinator = Coordinator(self, self.nodes[0], first_attempt=0, awaited=0)
        for node, at in zip(self.nodes, spec.joins, strict=True):
            self.at(at, node.launch)
        for chaos in spec.chaos:
            self.at(chaos.at, lambda c=chaos: self.do_chaos(c))

    # ------------------------------------------------------------- the clock

    def at(self, when: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now + seconds, call)

    def run(self) -> None:
        limit = EVENTS_MAX if not self.spec.is_big else 100 * EVENTS_MAX
        while self._heap:
            self.now, _, call = heapq.heappop(self._heap)
            self.events += 1
            self.expect(self.events < limit, "it never ends")
            call()
        self.check_end()

    def delay(self) -> float:
        most = self.spec.delay_seconds
        return self.rng.uniform(most / 4, most) if self.rng.random() < 0.9 else most * 4

    def note(self, text: str) -> None:
        if self.log is not None:
            self.log.append(f"{self.now:10.4f}  {text}")

    say = note

    def next_port(self, count: int) -> int:
        self._ports += count
        return self._ports - count

    def connect(self, node: Node, coordinator: Coordinator) -> Connection:
        self._numbers += 1
        connection = Connection(self, node, coordinator, self._numbers)
        coordinator.links[self._numbers] = connection
        node.connections.append(connection)
        return connection

    # ----------------------------------------------------------- the processes

    def plan_of(self, attempt: int, hosts: tuple[Host, ...]) -> list[list]:
        """The processes of each node; every node must come to the same plan."""
        known = self._plans.get(attempt)
        if known is None or not self.spec.is_big:
            plan = make_plan(self.spec.job, hosts, attempt, "uid")
            text = plan_bytes(plan)
            if known is None:
                each: list[list] = [[] for _ in hosts]
                for proc in plan.procs:
                    each[proc.node_rank].append(proc)
                known = self._plans[attempt] = (text, plan, each)
            self.expect(known[0] == text, f"two plans of attempt {attempt}")
        return known[2]

    def start_proc(self, node: Node, attempt: int, key: Key) -> Proc:
        older = [
            p for a, procs in self.alive.items() if a < attempt
            for p in procs if not (p.node.is_expelled or p.is_stuck)
        ]  # fmt: skip
        self.expect(
            not older, f"{key} of attempt {attempt} starts, {[(p.node.name, p.key) for p in older]}"
        )
        newer = [a for a, procs in self.alive.items() if a > attempt and procs]
        self.expect(not newer, f"{key} of attempt {attempt} starts after one of {newer}")
        proc = Proc(node, attempt, key, self.rng.choice(self.spec.term_ways))
        self.alive.setdefault(attempt, set()).add(proc)
        if key[0] == "worker":
            end = self.spec.train_seconds * self.rng.uniform(1.0, 1.02)
            self.after(end, lambda: proc.is_dying or self.exit_proc(proc))
        self._plan_crash(proc)
        return proc

    def _plan_crash(self, proc: Proc) -> None:
        spec, rng = self.spec, self.rng
        if proc.attempt not in self._crash:
            crashes = proc.attempt < spec.crash_attempts and rng.random() < spec.crash_share
            ranks = self._plans[proc.attempt][1].procs
            at = rng.uniform(0.0, spec.train_seconds)
            self._crash[proc.attempt] = (at, rng.randrange(len(ranks)) if crashes else -1, "")
        at, index, _ = self._crash[proc.attempt]
        if index < 0:
            return
        procs = self._plans[proc.attempt][1].procs
        count = len(procs)
        chosen = {(p.role, p.rank) for p in (procs[index], procs[-1 - index])}
        if index % 3:  # else two ranks fail at the same moment
            chosen = {(procs[index].role, procs[index].rank)}
        if proc.key in chosen and count:
            jitter = rng.choice((0.0, rng.uniform(0.0, 0.003)))
            self.after(at + jitter, lambda: self.crash_proc(proc))

    def crash_proc(self, proc: Proc) -> None:
        """It fails by itself, in one of several ways."""
        if not proc.alive or proc.is_dying:
            return
        how = self.rng.choice(self.spec.crash_ways)
        supervisor = proc.node.supervisor
        if supervisor is not None and supervisor.phase == "running":
            self.add_root(Root(
                self.now, proc.node.node_rank, "rank", proc.key, proc.node.uncertainty
            ), proc.attempt)  # fmt: skip
        self.say(f"{proc.key} of attempt {proc.attempt} fails by itself: {how}")
        if how == "signal":
            self.exit_proc(proc, signal=self.rng.choice((6, 9, 11)))
        elif how == "exit":
            self.exit_proc(proc, code=self.rng.choice((1, 7, 101)))
        elif how == "not-found":
            self.exit_proc(proc, code=127, cause="not-found")
        else:
            proc.error_at = self.now
            proc.is_dying = True
            self.after(self.rng.uniform(0.0, 0.06), lambda: self.exit_proc(proc, code=1))
        self.tell_peers(proc.attempt, proc.node)

    def tell_peers(self, attempt: int, node: Node) -> None:
        """Other ranks of the attempt lose a peer, and end of it 10 to 40 ms later."""
        peers = sorted(
            (p for p in self.alive.get(attempt, ()) if p.key[0] == "worker"),
            key=lambda p: p.key,
        )
        for peer in peers[: self.spec.witnesses_max]:
            if self.rng.random() < self.spec.notice_share:
                self.after(self.rng.uniform(0.01, 0.04), lambda p=peer: self._witness(p))

    def _witness(self, proc: Proc) -> None:
        if proc.alive and not proc.is_dying:
            proc.error_at = self.now
            self.exit_proc(proc, code=1, peer_loss=True)

    def signal_proc(self, proc: Proc, number: int) -> None:
        if not proc.alive:
            return
        rng = self.rng
        if number == s.SIGKILL:
            proc.is_stuck = proc.way == "stuck"
            wait = STUCK_SECONDS if proc.is_stuck else rng.uniform(0.0001, 0.005)
            self.after(wait, lambda: self.exit_proc(proc, signal=9))
        elif proc.is_dying or proc.way == "die":
            self.after(rng.uniform(0.0001, 0.002), lambda: self.exit_proc(proc, signal=15))
        elif proc.way == "save":
            seconds = rng.uniform(0.0, self.spec.job.grace_seconds * 1.5)
            self.after(seconds, lambda: self.exit_proc(proc))
        elif proc.way == "fail":
            self.after(rng.uniform(0.003, 0.05), lambda: self._fail_on_term(proc))

    def _fail_on_term(self, proc: Proc) -> None:
        if proc.alive and not proc.is_dying:
            proc.error_at = self.now
            self.exit_proc(proc, code=1)

    def exit_proc(
        self,
        proc: Proc,
        *,
        code: int = 0,
        signal: int = 0,
        cause: str = "",
        peer_loss: bool = False,
    ) -> None:
        if not proc.alive:
            return
        proc.alive = False
        self.alive[proc.attempt].discard(proc)
        self.exited.setdefault(proc.attempt, {})[proc.key] = code or (128 + signal if signal else 0)
        node = proc.node
        if not node.is_up or node.procs.get(proc.key) is not proc:
            return
        node.feed(
            Exit(
                role=proc.key[0],
                rank=proc.key[1],
                node_rank=node.node_rank,
                host=node.name,
                attempt=proc.attempt,
                at_ns=int(self.now * 1e9),
                code=code,
                signal=signal,
                cause=cause or ("signal" if signal else "exit"),
                peer_loss=peer_loss,
                error_at_ns=int(proc.error_at * 1e9),
            )
        )

    # ---------------------------------------------------------------- chaos

    def do_chaos(self, chaos: Chaos) -> None:
        node = self.nodes[chaos.node]
        self.say(f"chaos: {chaos.what} {node.name}")
        if chaos.what == "launch":
            node.launch()
        elif chaos.what in ("signal", "twice"):
            node.on_signal(chaos.signal)
            if chaos.what == "twice":
                self.after(self.rng.choice((0.0, 0.3, 3.0)), lambda: node.on_signal(chaos.signal))
        elif chaos.what == "preempt":
            node.on_signal(15)
            launch = node.launch_count
            self.after(3.0, lambda: self.kill_node(node, "power", launch))
        elif chaos.what in ("power", "kill"):
            self.kill_node(node, chaos.what, node.launch_count)
        elif node is not self.coordinator.node:
            ways = {"cut": ("in", "out"), "cut-in": ("in",), "cut-out": ("out",)}[chaos.what]
            self.cut_node(node, ways, chaos.seconds)

    def kill_node(self, node: Node, how: str, launch: int) -> None:
        """power: the whole host, silently. kill: kill -9 of the launcher; its guardian acts."""
        if not node.lives or launch != node.launch_count:
            return
        node.is_up = False
        self.hurt_node(node, how)
        for proc in list(node.procs.values()):
            wait = 0.0 if how == "power" else self.rng.uniform(0.0, GUARDIAN_SECONDS)
            self.after(wait, lambda p=proc: self.exit_proc(p, signal=9))
        connection, node.connection = node.connection, None
        if connection is not None:
            connection.is_member_open = False
            if how == "kill":
                connection.post(
                    "out", lambda: connection.coordinator.lose(connection, "is gone (EOF)")
                )
            else:
                silent = self.lease * self.rng.uniform(0.75, 1.25)
                self.after(silent, lambda: connection.coordinator.lose(
                    connection, "is silent", is_silent=True))  # fmt: skip
        if node is self.coordinator.node:
            self.lose_coordinator(how)

    def lose_coordinator(self, how: str) -> None:
        old = self.coordinator
        old.is_up = False
        old.is_lost = True
        for connection in list(old.links.values()):
            if connection.node is old.node:
                continue
            connection.is_coordinator_open = False
            if how == "kill":
                connection.post("in", lambda c=connection: c.node.on_closed(c))
            else:
                wait = self.lease * self.rng.uniform(0.67, FENCE_SHARE)
                self.after(wait, lambda c=connection: self._fence(c))
        if self.spec.kind == "etcd" and old.verdict is None:
            self.after(self.rng.uniform(2.0, 6.0), self.elect)

    def elect(self) -> None:
        """Another node's launcher takes the job over."""
        able = [n for n in self.nodes if n.lives and not n.cuts and n.signals == 0]
        if not able:
            return
        node = able[0]
        if node.connection is not None or node.supervisor is not None:
            self.after(0.5, self.elect)  # it has not noticed yet, or still stops
            return
        earlier = len(self.coordinator.machine.active_ids) - 1
        self.say(f"{node.name} takes over, after attempt {self.started}")
        self.coordinator = Coordinator(
            self, node, first_attempt=self.started + 1, awaited=max(0, earlier)
        )
        node._connect()

    def hurt_node(self, node: Node, kind: str) -> None:
        """Ranks elsewhere lose their peers on that node."""
        self.blame_node(node, kind)
        for attempt in {p.attempt for p in node.procs.values() if p.alive}:
            self.tell_peers(attempt, node)

    def blame_node(self, node: Node, kind: str) -> None:
        """Something happened to a node that has a part in an attempt."""
        machine = self.coordinator.machine
        number = node.connection.number if node.connection is not None else 0
        if number in machine._unstopped:
            self.add_root(Root(self.now, self.places[number], kind), machine.attempt)

    def cut_node(self, node: Node, ways: tuple[str, ...], seconds: float) -> None:
        new = [w for w in ways if w not in node.cuts]
        if not new:
            return
        node.cuts.update(new)
        if self.rng.random() < 0.5:
            self.hurt_node(node, "cut")
        else:
            self.blame_node(node, "cut")
        connection = node.connection
        started = self.now
        if connection is not None:
            last_ping = self.now - self.rng.uniform(0.0, self.lease / 4)
            self.at(
                max(self.now, last_ping + FENCE_SHARE * self.lease),
                lambda: self._fence_if_cut(node, connection, started),
            )
            if "out" in ways:
                heard = self.rng.uniform(last_ping, self.now)
                silent = heard + self.lease * self.rng.uniform(1.0, 1.25)
                self.at(silent, lambda: self._silent_if_cut(node, connection, started))
        for way in new:
            node.cut_since[way] = started
        self.after(seconds, lambda: self._heal(node, new))

    def _heal(self, node: Node, ways: list[str]) -> None:
        for way in ways:
            node.cuts.discard(way)
            for connection in node.connections:
                connection.heal(way)

    def _is_cut_since(self, node: Node, since: float) -> bool:
        return any(node.cut_since[w] <= since for w in node.cuts)

    def _fence_if_cut(self, node: Node, connection: Connection, since: float) -> None:
        if self._is_cut_since(node, since):
            self._fence(connection)

    def _silent_if_cut(self, node: Node, connection: Connection, since: float) -> None:
        if "out" in node.cuts and node.cut_since["out"] <= since:
            connection.coordinator.lose(connection, "is silent", is_silent=True)

    def _fence(self, connection: Connection) -> None:
        if connection.node.connection is connection and connection.node.lives:
            connection.node.lose(is_silent=True)

    # --------------------------------------------------------------- checks

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise BrokenWorldError(f"seed {self.spec.seed}, {self.now:.4f} s: {otherwise}")

    def add_root(self, root: Root, attempt: int) -> None:
        self.roots.setdefault(attempt, []).append(root)

    def check_blame(self, culprit: Exit | None, attempt: int) -> None:
        self.expect(culprit is not None, "a restart without a culprit")
        assert culprit is not None
        problem = blame_problem(culprit, self.roots.get(attempt, []), self.lease)
        self.expect(not problem, problem)

    def check_verdict(self, verdict: Verdict, machine: Membership) -> None:
        self.expect(verdict.restarts <= self.spec.job.restart.max_restarts, "too many restarts")
        culprit = verdict.culprit
        if verdict.kind == "succeed":
            exits = self.exited.get(verdict.attempt, {})
            plan = self._plans[verdict.attempt][1]
            bad = [p.name for p in plan.of_role("worker") if exits.get(("worker", p.rank)) != 0]
            self.expect(not bad, f"success, but {bad} did not exit 0")
            self.expect(verdict.exit_code == 0 and culprit is None, "success with a culprit")
        else:
            self.expect(verdict.exit_code != 0, f"{verdict.kind} with exit code 0")
        if verdict.kind == "fail" and culprit is None:
            self.expect(verdict.exit_code == 124, f"nobody is blamed: {verdict.reason}")
        if culprit is not None:
            self.expect(verdict.exit_code == culprit.exit_code, "exit code is not the culprit's")
            self.expect(culprit.attempt == verdict.attempt, "culprit of another attempt")
            self.check_blame(culprit, culprit.attempt)
        if verdict.kind == "cancel" and verdict.clean:
            bad = [
                k for k, code in self.exited.get(verdict.attempt, {}).items()
                if code and k[0] == "worker"
            ]  # fmt: skip
            self.expect(not bad, f"clean, but {bad} did not exit 0")
        self.verdicts.append(verdict)

    def check_end(self) -> None:
        alive = [(p.node.name, p.key) for procs in self.alive.values() for p in procs]
        self.expect(not alive, f"still alive in the end: {alive}")
        running = [n.name for n in self.nodes if n.lives]
        self.expect(not running, f"launchers that never ended: {running}")
        coordinator = self.coordinator
        if not coordinator.is_lost:
            self.expect(coordinator.machine.phase == "ended", "no verdict")
        self.expect(len(self.verdicts) <= 1, f"{len(self.verdicts)} verdicts")
        self._check_calm()

    def _check_calm(self) -> None:
        """Where nothing happens, the job succeeds, or says who is missing."""
        spec = self.spec
        if spec.chaos or spec.crash_share or spec.job.timeout_seconds or "stuck" in spec.term_ways:
            return
        (verdict,) = self.verdicts
        limit = spec.job.rendezvous.join_timeout_seconds - 5.0
        able = spec.joins[: spec.job.nnodes_max] if spec.has_ranks else spec.joins
        came = sum(1 for at in able if at < limit)
        if came >= spec.job.nnodes_min:
            self.expect(verdict.kind == "succeed", f"{came} nodes came, and it was: {verdict}")
        else:
            self.expect(verdict.exit_code in (0, 124), f"{came} nodes came: {verdict}")


def shown(thing: object) -> str:
    """An event or action, short enough for a transcript."""
    text = repr(thing)
    return text if len(text) <= 300 else text[:300] + "…"
