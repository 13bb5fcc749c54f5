"""A host: the agent's own Launcher, Place and Member on a made-up loop and processes.

What is made up is what a launcher takes from its machine: the loop (time, late when the launcher
is paused), the node runner (processes under the real Supervisor) and the way to etcd.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from paddock.agent.etcd_election import messages as w
from paddock.agent.etcd_election.election import EtcdElector
from paddock.agent.etcd_election.election_state import ElectionState
from paddock.agent.etcd_election.succession import TTL_SECONDS
from paddock.agent.launcher import Launcher
from paddock.agent.leadership.leadership import Leadership
from paddock.agent.leadership.majority import MajorityElector
from paddock.core.attempt import supervisor as s
from paddock.core.hosts import Host
from paddock.core.value import replace
from paddock.etcd.reply import EtcdUnreachable
from paddock.local.node import LaunchContext
from paddock.local.report.reporter import Reporter
from paddock.local.report.text import LEVELS
from sim.net import Net

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.coordinator import Coordinator
    from paddock.core.attempt.exits import Exit
    from paddock.core.plan import Plan
    from paddock.core.rendezvous.messages import Stop
    from paddock.local.node import NodeEvents
    from sim.world import Proc, World

EVIDENCE_SECONDS = 0.03  # local/node.py
REQUEST_SECONDS = 0.4 * TTL_SECONDS  # agent/etcd_election/election.py
Key = tuple[str, int]


class Loop:
    """The loop of one launcher: local/loop.py without a kernel."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.launch = node.launch_count
        self._timers: dict[str, int] = {}
        self._count = 0

    @property
    def is_mine(self) -> bool:
        """Its launcher still runs."""
        return self.node.lives and self.launch == self.node.launch_count

    def now(self) -> float:
        return self.node.world.now + self.node.skew

    def now_ns(self) -> int:
        return int(self.now() * 1e9)

    def wall(self) -> float:
        return 1.7e9 + self.node.world.now + self.node.wall_skew

    def at(self, name: str, when: float | None, callback: Callable[[], None]) -> None:
        self._count += 1
        self._timers[name] = mine = self._count
        if when is None:
            return

        def fire() -> None:
            if self._timers.get(name) == mine:
                del self._timers[name]
                callback()

        world = self.node.world
        late = world.rng.choice((0.0, 0.0, 0.001))
        world.at(max(world.now, when - self.node.skew) + late, lambda: self.call(fire))

    def post(self, call: Callable[[], None]) -> None:
        self.node.world.after(0.0, lambda: self.call(call))

    def call(self, what: Callable[[], None]) -> None:
        """Run it in the launcher, as soon as that is not paused."""
        world = self.node.world
        if not self.is_mine:
            return
        if world.now < self.node.paused_until:
            world.at(self.node.paused_until, lambda: self.call(what))
            return
        what()
        self.node.watch()

    def stop(self) -> None:
        """The launcher has nothing more to wait for."""
        self.node.finish()


class NodeRunner:
    """The processes of one launcher; local/node.py with made-up ones."""

    events: NodeEvents

    def __init__(self, node: Node) -> None:
        self.node = node
        self.notes: tuple[str, ...] = ()
        self.warning = ""
        self.server_restarts = 0
        self.supervisor: s.Supervisor | None = None
        self.procs: dict[Key, Proc] = {}
        self.node_rank = 0
        self.attempt = ("", -1)
        self._reports_until = 0.0

    @property
    def is_running(self) -> bool:
        return self.supervisor is not None

    @property
    def is_stopping(self) -> bool:
        return self.supervisor is not None and self.supervisor.phase != "running"

    def gather(self, address: str) -> Host:
        job = self.node.world.spec.job
        slots = tuple((r.name, 0, r.count or 1) for r in job.roles)
        count = sum(c for _, _, c in slots)
        port = self.node.world.next_port(count + 4)
        ports = tuple(range(port, port + count + 4))
        return Host(
            self.node.name, address, slots=slots, ports=ports[:count], service_ports=ports[count:]
        )

    def prepare(self, then: Callable[[int], None]) -> None:
        then(0)

    def cancel_hook(self) -> None:
        return

    def start(self, plan: Plan, node_rank: int) -> None:
        world = self.node.world
        job = world.spec.job
        world.expect(self.supervisor is None, f"{self.node.name}: {plan.attempt} on a running one")
        world.see_plan(plan)
        self.node_rank = node_rank
        self.attempt = (plan.uid, plan.attempt)
        keys = [(p.role, p.rank) for p in world.procs_on(plan, node_rank)]
        self.supervisor = s.Supervisor(plan.attempt, keys, grace_seconds=job.grace_seconds)
        world.say(f"{self.node.name} starts attempt {plan.attempt} as node {node_rank}")
        for key in keys:
            self.procs[key] = world.start_proc(self.node, self.attempt, key)

    def stop(self, order: Stop) -> None:
        if self.supervisor is not None:
            self.feed(replace(order, attempt=self.supervisor.attempt))

    def feed(self, event: s.Event) -> None:
        if self.supervisor is None:
            return
        world, loop = self.node.world, self.node.loop
        for action in self.supervisor.handle(event, loop.now()):
            if isinstance(action, s.SignalGroup):
                world.signal_proc(self.procs[action.key], action.signal)
            elif isinstance(action, s.SetTimer):
                loop.at("node", action.at, lambda: self.feed(s.TimerFired()))
            elif isinstance(action, s.ReportExit):
                self._report(action.exit)
            elif isinstance(action, s.AttemptEnded):
                done = max(self._reports_until, world.now + world.rng.uniform(0.0, 0.01)) + 1e-4
                loop.at("drain", done + self.node.skew, partial(self._ended, action.attempt))

    def _report(self, exit_: Exit) -> None:
        """Evidence is collected for a moment; the reports of one node may change places."""
        world, loop = self.node.world, self.node.loop
        delay = 0.0 if exit_.ok else world.rng.uniform(0.0, EVIDENCE_SECONDS)
        self._reports_until = max(self._reports_until, world.now + delay)
        world.after(delay, lambda: loop.call(lambda: self.events.exited(exit_)))

    def _ended(self, attempt: int) -> None:
        alive = [p.key for p in self.procs.values() if p.alive]
        self.node.world.expect(
            not alive, f"{self.node.name} says that attempt {attempt} ended: {alive}"
        )
        self.procs, self.supervisor = {}, None
        self.events.stopped(attempt)

    def pause(self, *, is_paused: bool) -> None:
        del is_paused

    def forward(self, number: int) -> None:
        del number

    def last_notes(self) -> list[str]:
        return []

    def close(self) -> None:
        return


class Candidate:
    """One launcher's part in an election: agent/etcd_election/election.py with a model of etcd."""

    def __init__(self, node: Node, record: w.LeaderRecord, post: Callable[[w.Event], None]) -> None:
        self.node = node
        self.launch = node.launch_count
        self.is_alive = True
        nonce = f"{node.name}-{node.launch_count}"
        rng = node.world.rng
        self.state = ElectionState(replace(record, nonce=nonce), rng.random, TTL_SECONDS)
        self._post = post
        self._inbox: list[w.Input] = []
        self._waits_for = 0

    def give(self, what: w.Input) -> None:
        self._inbox.append(what)
        self.node.world.after(0.0, self.run)

    def run(self) -> None:
        world = self.node.world
        while self.is_alive and self._inbox and not self._waits_for:
            if world.now < self.node.paused_until:
                world.at(self.node.paused_until, self.run)
                return
            for order in self.state.step(self._inbox.pop(0), world.now + self.node.skew + 1e-6):
                self._carry_out(order)
        if self.is_alive and not self._waits_for:
            wake_at = self.state.wake_at(world.now + self.node.skew)
            if wake_at is not None:
                world.at(max(wake_at - self.node.skew, world.now + 0.001), self._wake)

    def _wake(self) -> None:
        now = self.node.world.now + self.node.skew
        wake_at = self.state.wake_at(now)
        if self.is_alive and not self._waits_for and wake_at is not None:
            if wake_at <= now + 1e-6:
                self._inbox.append(w.ElectionTick())
            self.run()

    def _carry_out(self, order: object) -> None:
        world = self.node.world
        if isinstance(order, w.PublishEvent):
            event = order.event
            if self.launch == self.node.launch_count:
                loop = self.node.loop
                world.say(f"{self.node.name} is told {event}"[:200])
                world.after(0.0, lambda: loop.call(lambda: self._post(event)))
        elif isinstance(order, w.ElectionDone):
            self.is_alive = False
        else:
            self._waits_for = serial = world.next_port(1)
            failed = w.RequestFailed(EtcdUnreachable("no answer"))
            world.after(REQUEST_SECONDS, lambda: self._answer(serial, failed))
            if self.node.reaches_etcd:
                world.after(world.etcd_delay(), lambda: self._arrive(serial, order))

    def _arrive(self, serial: int, request: object) -> None:
        world = self.node.world
        answer = world.etcd.apply(request)  # type: ignore[arg-type]  # all other orders are requests
        if self.node.reaches_etcd:
            world.after(world.etcd_delay(), lambda: self._answer(serial, answer))

    def _answer(self, serial: int, answer: w.Input) -> None:
        if self._waits_for == serial and self.is_alive:
            self._waits_for = 0
            self._inbox.insert(0, answer)
            self.run()


class Node:
    """A host with its launcher, and again a launcher after that has ended."""

    run: Launcher
    loop: Loop
    share: NodeRunner

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.name = f"n{number}"
        self.address = f"10.0.{number // 250}.{number % 250 + 1}"
        self.is_on = True  # the host has power
        self.cuts: set[str] = set()
        self.cut_since: dict[str, float] = {}
        self.skew = world.rng.uniform(0.0, 1000.0)
        self.wall_skew = world.rng.uniform(-0.5, 0.5)
        self.paused_until = 0.0
        self.without_etcd_until = 0.0
        self.launch_count = 0
        self.is_up = False
        self.signals = 0
        self.was_told = False  # by a signal, at any time
        self.is_expelled = False
        self.candidate: Candidate | None = None
        self.leadership: Leadership | None = None
        self._watched: Coordinator | None = None

    @property
    def lives(self) -> bool:
        """Its launcher runs."""
        return self.is_up

    @property
    def reaches_etcd(self) -> bool:
        """Whether its requests arrive, and their answers."""
        return not self.cuts and self.world.now >= self.without_etcd_until

    @property
    def is_without_etcd(self) -> bool:
        """It may not know that another leads; alone in its attempt, nobody tells it by going."""
        return self.world.now < self.without_etcd_until + 5.0

    @property
    def is_held_up(self) -> bool:
        """Its launcher stands still, or did a moment ago: it cannot end its processes in time."""
        return self.paused_until > self.world.now - 1.0

    @property
    def coordinator(self) -> Coordinator | None:
        """Its own, while it has one."""
        session = self.leadership.session if self.leadership is not None else None
        return session.coordinator if session is not None else None

    # ------------------------------------------------------------- the launcher

    def launch(self) -> None:
        """Start a launcher, as the user does; the host is switched on for it."""
        if self.lives:
            return
        self.launch_count += 1
        self.is_up = self.is_on = True
        self.signals = 0
        self.is_expelled = False
        world = self.world
        self.loop = Loop(self)
        self.share = NodeRunner(self)
        rendezvous = world.spec.job.rendezvous
        if world.spec.has_ranks:
            rendezvous = replace(rendezvous, node_rank=self.number)
        self.run = Launched(
            replace(world.spec.job, rendezvous=rendezvous),
            LaunchContext(self.world.env, 1, f"{self.name}.{self.launch_count}"),
            loop=self.loop,  # type: ignore[arg-type]  # as real as it gets here
            node=self.share,  # type: ignore[arg-type]  # as above
            say_raw=self._say,
            reporter=Reporter(LEVELS[world.spec.job.logs.level], self._say),
        )
        self.run.world = world
        self.leadership = Leadership(self.run, Net(self), b"")  # type: ignore[arg-type]  # as above
        self.loop.call(self._meet)

    def _meet(self) -> None:
        """What agent/rendezvous.py finds out from this host's addresses."""
        world, leadership = self.world, self.leadership
        assert leadership is not None
        leadership.address = self.address
        if world.spec.kind == "etcd":
            leadership.listener = leadership.net.bind(self.address, 0)
            assert leadership.listener is not None
            leadership.port = leadership.listener.port
            record = w.LeaderRecord(self.name, self.address, leadership.port, "")
            etcd = EtcdElector(leadership)
            self.candidate = candidate = Candidate(self, record, etcd.handle)
            self.run.at_end(lambda: candidate.give(w.StopRequested(leadership.has_finished)))
            etcd.begin(candidate.give)
            candidate.give(w.ElectionTick())
            return
        elector = MajorityElector(leadership)
        leadership.elect_by(elector)
        host, port = world.master
        if self.address == host:
            leadership.listener = leadership.net.bind(host, port)
            elector.own_rendezvous_address = world.master
            leadership.handle(w.Elected(0, None))
        else:
            elector.first = world.master
            leadership.handle(w.Following(w.LeaderRecord("", host, port, ""), 0))

    def _say(self, text: str, *, to_stdout: bool = False) -> None:
        del to_stdout
        if self.world.log is not None:
            for line in text.splitlines():
                level, _, rest = line.removeprefix("LAUNCH ").partition(" ")
                told = rest.split(" ", 2)[-1] if line.startswith("LAUNCH ") else rest
                self.world.say(f"{self.name}: {level} {told}")  # without the time of day
        self.watch()

    def watch(self) -> None:
        """Let the world see what a new coordinator of ours hears and orders."""
        coordinator = self.coordinator
        if coordinator is not None and coordinator is not self._watched:
            self._watched = coordinator
            self.world.watch_coordinator(self, coordinator)

    def finish(self) -> None:
        """The launcher ends by itself."""
        if not self.is_up:
            return
        self.world.say(f"{self.name} ends with {self.run.exit_code}")
        alive = [p.key for p in self.share.procs.values() if p.alive]
        self.world.expect(not alive, f"{self.name} ends and leaves {alive}")
        self.run.close()
        self.is_up = False
        self.world.ended_at = self.world.now
        self._hang_up()

    def _hang_up(self, *, is_reset: bool = False) -> None:
        """The kernel closes what a process had open."""
        for pipe in self.world.pipes:
            for end in pipe.ends:
                if end.node is self and is_reset:
                    end.abort()
                elif end.node is self:
                    end.close()
        listen_ports = self.world.listen_ports
        for where in [at for at, listener in listen_ports.items() if listener.node is self]:
            del listen_ports[where]

    def kill(self, how: str) -> None:
        """power: the whole host, silently. kill: kill -9 of the launcher; its guardian acts."""
        self.is_up = False
        if self.candidate is not None:
            self.candidate.is_alive = False
        if how == "kill":
            self._hang_up(is_reset=self.world.rng.random() < self.world.spec.reset_share)
            return
        self.is_on = False
        for pipe in self.world.pipes:
            for end in pipe.ends:
                if end.node is self:
                    end.is_open = False
        listen_ports = self.world.listen_ports
        for where in [at for at, listener in listen_ports.items() if listener.node is self]:
            del listen_ports[where]

    def on_signal(self, number: int) -> None:
        """The launcher gets a signal."""
        if self.lives:
            self.signals += 1
            self.was_told = self.world.is_disturbed = True
            self.world.say(f"{self.name} gets signal {number}")
            self.loop.call(lambda: self.run.member.on_signal(number))


class Launched(Launcher):
    """A Launcher whose uids are the same in every replay of a seed."""

    world: World

    def new_uid(self) -> str:
        return f"run{self.world.next_port(1)}"
