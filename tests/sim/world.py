"""One simulated world: the agent's real code; time, network, etcd and processes are made up.

Fake time is a heap of events. Every node runs Run, Place, Life, Member, Client, Server and
Coordinator as they are (node.py); what must hold is checked while it runs (``expect``) and at the
end (``check_end``).
"""

from __future__ import annotations

import dataclasses
import heapq
from random import Random
from typing import TYPE_CHECKING

from paddock.core.attempt import supervisor as s
from paddock.core.attempt.exits import Exit
from paddock.core.plan import plan_bytes
from paddock.core.rendezvous import messages as m
from paddock.core.value import replace
from sim.etcd import Etcd
from sim.node import Node
from sim.truth import Root, blame_problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.agent.coordinator import Coordinator
    from paddock.core.attempt.policy import Verdict
    from paddock.core.plan import Plan
    from paddock.core.plan import Proc as PlannedProc
    from sim.net import Listener, Pipe
    from sim.spec import Chaos, Spec

GUARDIAN_SECONDS = 0.9  # kill -9 of a launcher: nothing left after 1 s
EVENTS_MAX = 300_000
STUCK_SECONDS = 60.0
LAST_SECONDS = 2000.0  # nothing of a world lasts so long
MASTER = ("10.0.0.1", 6768)
Key = tuple[str, int]
Which = tuple[str, int]  # an attempt: the run's uid and the number


class BrokenWorldError(AssertionError):
    """Something that must hold does not."""


class Proc:
    """A process. way: what it does on SIGTERM."""

    __slots__ = ("alive", "attempt", "error_at", "is_dying", "is_stuck", "key", "node", "way")

    def __init__(self, node: Node, attempt: Which, key: Key, way: str) -> None:
        self.node = node
        self.attempt = attempt
        self.key = key
        self.way = way
        self.alive = True
        self.error_at = 0.0
        self.is_dying = False
        self.is_stuck = False  # in D state: not even SIGKILL ends it for a while


class World:
    """Everything, at one time. run() raises BrokenWorldError when something does not hold."""

    def __init__(self, spec: Spec, *, log: list[str] | None = None) -> None:
        self.spec = spec
        self.log = log
        self.rng = Random(spec.seed + 1)
        self.now = 0.0
        self.master = MASTER
        self.env: dict[str, str] = {}  # of every launcher
        self.lease = spec.job.rendezvous.lease_seconds
        self.etcd = Etcd(self)
        self.listen_ports: dict[tuple[str, int], Listener] = {}
        self.pipes: list[Pipe] = []
        self.started: dict[str, int] = {}  # the latest attempt of each run
        self.latest: Which = ("", -1)
        self.places: dict[str, int] = {}  # node rank of each node, in the latest attempt
        self.alive: dict[Which, set[Proc]] = {}
        self.roots: dict[Which, list[Root]] = {}
        self.exited: dict[Which, dict[Key, int]] = {}
        self.verdicts: list[Verdict] = []
        self.judged: list[str] = []  # the run of each
        self.harmed: dict[str, float] = {}  # when something last happened to a node
        self.skew = 0.0  # of the clock by which the coordinator that speaks tells the time
        self.is_disturbed = False  # somebody did something to a node
        self.ended_at = 0.0  # when the last launcher did
        self.is_leaderless = False  # a coordinator was lost, or cut off: there may be no verdict
        self.split: frozenset[Node] = frozenset()  # these nodes reach only one another
        self.events = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._ports = 10_000
        self._plans: dict[Which, tuple[bytes, Plan, list[list[PlannedProc]]]] = {}
        self._crash: dict[Which, tuple[float, int, str]] = {}
        self.nodes = [Node(self, i) for i in range(len(spec.joins))]
        self._by_address = {node.address: node for node in self.nodes}
        for node, at in zip(self.nodes, spec.joins, strict=True):
            self.at(at, node.launch)
        for chaos in spec.chaos:
            self.at(chaos.at, lambda c=chaos: self.do_chaos(c))
        if spec.kind == "etcd":
            self._tick()

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
            self.expect(self.events < limit and self.now < LAST_SECONDS, "it never ends")
            call()
        self.check_end()

    def delay(self) -> float:
        most = self.spec.delay_seconds
        return self.rng.uniform(most / 4, most) if self.rng.random() < 0.9 else most * 4

    def etcd_delay(self) -> float:
        """etcd is near: its clients need two answers within a second."""
        return self.rng.uniform(0.0005, 0.02) if self.rng.random() < 0.95 else 0.3

    def _tick(self) -> None:
        """etcd looks for leases that are over twice a second."""
        self.etcd.expire()
        if (
            any(node.lives for node in self.nodes)
            or self.now < max(self.spec.joins) + 1.0
            or (self.spec.chaos and self.now < self.spec.chaos[-1].at + 1.0)
        ):
            self.after(0.5, self._tick)

    def note(self, text: str) -> None:
        if self.log is not None:
            self.log.append(f"{self.now:10.4f}  {text}")

    say = note

    def next_port(self, count: int) -> int:
        self._ports += count
        return self._ports - count

    def host_at(self, address: str) -> Node | None:
        return self._by_address.get(address)

    # ------------------------------------------------------- what coordinators do

    def watch_coordinator(self, node: Node, coordinator: Coordinator) -> None:
        """See every event of a new coordinator's machine, and what it orders."""
        machine = coordinator.machine
        handle = machine.handle

        def watched(event: m.Event, now: float) -> list[m.Action]:
            if self.log is not None and not isinstance(event, m.TimerFired):
                self.note(f"{node.name} -> {shown(event)}")
            attempt = machine.attempt
            self.skew = node.skew
            actions = handle(event, now)
            for action in actions:
                if self.log is not None and not isinstance(action, m.SetTimer):
                    self.note(f"{node.name}    {machine.phase}: {shown(action)}")
                self._check_action(coordinator, action, (coordinator.uid, attempt))
            used, most = machine.state.used_budget.used_restarts, self.spec.job.restart.max_restarts
            self.expect(used <= most, f"{used} restarts were used")
            return actions

        machine.handle = watched  # type: ignore[method-assign]  # to see, not to change

    def _check_action(self, coordinator: Coordinator, action: m.Action, attempt: Which) -> None:
        if isinstance(action, m.End) and not action.handed_over:
            self.check_verdict(action.verdict, coordinator.uid)
        # To whom it is handed over may be lost already, and not yet missed.
        self.is_leaderless |= isinstance(action, m.End) and action.handed_over
        if not isinstance(action, m.Send):
            return
        message = action.message
        if isinstance(message, m.Notice) and ": restarting (" in message.text:
            self.check_blame(message.culprit, attempt)
        elif isinstance(message, m.JobEnded) and message.verdict.kind == "fail":
            for member in action.members:  # it may still have processes that will not end
                there = self.host_at(getattr(coordinator._links.get(member), "address", ""))
                if there is not None:
                    there.is_expelled = True
        elif isinstance(message, m.Start):
            self._see_start((coordinator.uid, message.attempt), message)

    def _see_start(self, attempt: Which, start: m.Start) -> None:
        self.latest = attempt
        self.places = {host.name: rank for rank, host in enumerate(start.hosts)}
        for rank, host in enumerate(start.hosts):
            node = next(n for n in self.nodes if n.name == host.name)
            is_another = start.keys[rank] != f"{node.name}/{node.name}.{node.launch_count}"
            member = node.run.member
            has_lost_us = node.lives and (member._send is None or member.uid != attempt[0])
            is_away = node.cuts or self.now < node.paused_until
            if not node.lives or is_another or has_lost_us or is_away:
                self.add_root(Root(self.now, rank, "cut"), attempt)

    def see_plan(self, plan: Plan) -> None:
        """A node has made its plan: every node must come to the same one."""
        which = (plan.uid, plan.attempt)
        known = self._plans.get(which)
        if known is None:
            each: list[list[PlannedProc]] = [[] for _ in range(plan.nnodes)]
            for proc in plan.procs:
                each[proc.node_rank].append(proc)
            self._plans[which] = (plan_bytes(plan), plan, each)
            latest = self.started.get(plan.uid, -1)
            self.expect(plan.attempt > latest, f"attempt {plan.attempt} starts after {latest}")
            self.started[plan.uid] = plan.attempt
        elif not self.spec.is_big and known[0] != plan_bytes(plan):
            # A coordinator that was lost before anybody heard of its attempt gave it that number.
            is_again = self.spec.kind == "votes" and not self.alive.get(which)
            self.expect(is_again, f"two plans of attempt {which}")
            del self._plans[which], self._crash[which]
            self.started[plan.uid] = plan.attempt - 1
            self.see_plan(plan)

    def procs_on(self, plan: Plan, node_rank: int) -> list[PlannedProc]:
        return self._plans[plan.uid, plan.attempt][2][node_rank]

    def doubt(self, node: Node) -> float:
        """How wrong the coordinator's idea of this node's clock may be."""
        client = node.leadership.client if node.leadership is not None else None
        clock = client._clock if client is not None else []
        return min(clock)[0] / 2e9 if clock else 0.0

    # ----------------------------------------------------------- the processes

    def start_proc(self, node: Node, attempt: Which, key: Key) -> Proc:
        uid, number = attempt
        # With etcd, two runs of one job exclude each other; without, nobody knows of both.
        runs = self.started if self.spec.kind == "etcd" else (uid,)
        same = {a: procs for (run, a), procs in self.alive.items() if run in runs}
        older = [
            f"{p.node.name} {p.key} of {a}"
            for a, procs in same.items()
            for p in procs
            if a < number
            and not (p.is_stuck or p.node.is_expelled or p.node.is_held_up)
            and not (p.node.is_without_etcd and all(q.node is p.node for q in procs))
        ]
        self.expect(not older, f"{key} of attempt {number} starts beside {older}")
        newer = [a for a, procs in same.items() if a > number and procs]
        self.expect(not newer, f"{key} of attempt {number} starts after one of {newer}")
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
            crashes = proc.attempt[1] < spec.crash_attempts and rng.random() < spec.crash_share
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
        supervisor = proc.node.share.supervisor
        if supervisor is not None and supervisor.phase == "running":
            doubt = self.doubt(proc.node)
            root = Root(self.now, proc.node.share.node_rank, "rank", proc.key, doubt)
            self.add_root(root, proc.attempt)
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

    def tell_peers(self, attempt: Which, node: Node) -> None:
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
        if proc.is_dying and signal == s.SIGTERM:
            self._cut_short(proc)
        self.exited.setdefault(proc.attempt, {})[proc.key] = code or (128 + signal if signal else 0)
        node = proc.node
        if not node.is_up or node.share.procs.get(proc.key) is not proc:
            return
        exit_ = Exit(
            role=proc.key[0],
            rank=proc.key[1],
            node_rank=node.share.node_rank,
            host=node.name,
            attempt=proc.attempt[1],
            at_ns=node.loop.now_ns(),
            code=code,
            signal=signal,
            cause=cause or ("signal" if signal else "exit"),
            peer_loss=peer_loss,
            error_at_ns=int((proc.error_at + node.skew) * 1e9) if proc.error_at else 0,
        )
        share = node.share
        node.loop.call(lambda: share.feed(exit_))

    def _cut_short(self, proc: Proc) -> None:
        roots = self.roots.get(proc.attempt, [])
        for at, root in enumerate(roots):
            if root.key == proc.key:
                roots[at] = dataclasses.replace(root, is_cut_short=True)

    # ---------------------------------------------------------------- chaos

    def do_chaos(self, chaos: Chaos) -> None:
        node = self.nodes[chaos.node]
        self.say(f"chaos: {chaos.what} {node.name} {chaos.seconds:g}")
        self.is_disturbed = True
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
        elif chaos.what == "pause":
            self.pause_node(node, chaos.seconds)
        elif chaos.what == "reset":
            self.reset_node(node)
        elif chaos.what == "no-etcd":
            node.without_etcd_until = self.now + chaos.seconds
            for one in self.nodes:  # they may be told to follow another at any time
                self.blame_node(one, "cut")
        elif chaos.what == "split":
            self.split_off(node, chaos.seconds)
        else:
            ways = {"cut": ("in", "out"), "cut-in": ("in",), "cut-out": ("out",)}[chaos.what]
            self.cut_node(node, ways, chaos.seconds)

    def is_coordinating(self, node: Node) -> bool:
        """Whether the job hangs on this node, or may: it has been handed over to it just now."""
        nobody = not any(n.lives and n.coordinator for n in self.nodes)
        return node.coordinator is not None or nobody or self.spec.kind == "etcd"

    def kill_node(self, node: Node, how: str, launch: int) -> None:
        if not node.lives or launch != node.launch_count:
            return
        self.is_leaderless |= self.is_coordinating(node)
        self.hurt_node(node, how)
        node.kill(how)
        for proc in list(node.share.procs.values()):
            wait = 0.0 if how == "power" else self.rng.uniform(0.0, GUARDIAN_SECONDS)
            self.after(wait, lambda p=proc: self.exit_proc(p, signal=9))

    def pause_node(self, node: Node, seconds: float) -> None:
        """The launcher stands still (its ranks do not): SIGSTOP, or a loop that is held up."""
        if node.lives:
            self.is_leaderless |= self.is_coordinating(node)
            self.blame_node(node, "cut")
            node.paused_until = max(node.paused_until, self.now + seconds)

    def reset_node(self, node: Node) -> None:
        """One end of a connection of this node breaks; the other is not told."""
        open_ends = [e for p in self.pipes for e in p.ends if e.node is node and e.is_open]
        if open_ends:
            self.is_leaderless |= self.is_coordinating(node)
            end = self.rng.choice(open_ends)
            self.blame_node(node, "cut")
            self.blame_node(end.other.node, "cut")
            (end if self.rng.random() < 0.5 else end.other).reset()

    def hurt_node(self, node: Node, kind: str) -> None:
        """Ranks elsewhere lose their peers on that node."""
        self.blame_node(node, kind)
        for attempt in {p.attempt for p in node.share.procs.values() if p.alive}:
            self.tell_peers(attempt, node)

    def blame_node(self, node: Node, kind: str) -> None:
        """Something happened to a node that has a part in an attempt.

        To a coordinator that stood still, or was cut off, all others seem to be at fault.
        """
        self.harmed[node.name] = self.now
        if kind == "cut" and node.coordinator is not None:
            for rank in self.places.values():
                self.add_root(Root(self.now, rank, kind), self.latest)
        if node.lives and node.share.supervisor is not None:
            self.add_root(Root(self.now, node.share.node_rank, kind), node.share.attempt)
        elif node.lives and node.name in self.places:
            self.add_root(Root(self.now, self.places[node.name], kind), self.latest)

    def cut_node(self, node: Node, ways: tuple[str, ...], seconds: float) -> None:
        new = [w for w in ways if w not in node.cuts]
        if not new or not node.lives:
            return
        self.is_leaderless |= self.is_coordinating(node)
        node.cuts.update(new)
        if self.rng.random() < 0.5:
            self.hurt_node(node, "cut")
        else:
            self.blame_node(node, "cut")
        self.after(seconds, lambda: self._heal(node, new))

    def _heal(self, node: Node, ways: list[str]) -> None:
        node.cuts.difference_update(ways)
        self._let_through()

    def _let_through(self) -> None:
        """What was held back goes on, where it is not cut by something else."""
        for pipe in self.pipes:
            for end in pipe.ends:
                end.heal()

    def are_apart(self, one: Node, other: Node) -> bool:
        """Whether a split is between them."""
        return (one in self.split) != (other in self.split)

    def split_off(self, node: Node, seconds: float) -> None:
        """This node and some others on one side, the rest on the other."""
        if self.split:
            return
        others = [n for n in self.nodes if n is not node and self.rng.random() < 0.4]
        self.split_off_exactly({node, *others}, seconds)

    def split_off_exactly(self, side: set[Node], seconds: float) -> None:
        self.split = frozenset(side)
        self.is_leaderless = self.is_disturbed = True
        for one in self.nodes:
            if one.lives:
                self.hurt_node(one, "cut")
        self.say(f"split: {sorted(n.name for n in self.split)}")
        self.after(seconds, self._join_up)

    def _join_up(self) -> None:
        self.say("the split is over")
        self.split = frozenset()
        self._let_through()

    # --------------------------------------------------------------- checks

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise BrokenWorldError(f"seed {self.spec.seed}, {self.now:.4f} s: {otherwise}")

    def add_root(self, root: Root, attempt: Which) -> None:
        self.roots.setdefault(attempt, []).append(root)

    def check_blame(self, culprit: Exit | None, attempt: Which) -> None:
        self.expect(culprit is not None, "a restart without a culprit")
        assert culprit is not None
        # A node that was told to leave and dies is no culprit; who misses it then is.
        leavers = {self.places.get(n.name) for n in self.nodes if n.was_told}
        roots = [r for r in self.roots.get(attempt, []) if r.node_rank not in leavers]
        if culprit.peer_loss and not roots:
            return
        # What happened to it in the attempt before may be noticed in this one.
        is_split = self.spec.kind in ("votes", "etcd")
        harmed = list(self.harmed) if is_split else [culprit.host]
        harmed_at = max((self.harmed.get(name, -99.0) for name in harmed), default=-99.0)
        noticed = 30.0 if is_split else 10.0  # by a leader that stood still, or that etcd forgot
        if culprit.cause == "node-lost" and self.now - harmed_at < noticed:
            return
        culprit = replace(culprit, at_ns=culprit.at_ns - int(self.skew * 1e9))
        problem = blame_problem(culprit, self.roots.get(attempt, []), self.lease)
        self.expect(not problem, problem)

    def check_verdict(self, verdict: Verdict, uid: str) -> None:
        self.expect(verdict.restarts <= self.spec.job.restart.max_restarts, "too many restarts")
        culprit = verdict.culprit
        if verdict.kind == "succeed":
            exits = self.exited.get((uid, verdict.attempt), {})
            plan = self._plans[uid, verdict.attempt][1]
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
            self.check_blame(culprit, (uid, culprit.attempt))
        if verdict.kind == "cancel" and verdict.clean and verdict.exits:
            bad = [
                k for k, code in self.exited.get((uid, verdict.attempt), {}).items()
                if code and k[0] == "worker"
            ]  # fmt: skip
            self.expect(not bad, f"clean, but {bad} did not exit 0")
        self.verdicts.append(verdict)
        self.judged.append(uid)

    def check_end(self) -> None:
        alive = [(p.node.name, p.key) for procs in self.alive.values() for p in procs]
        self.expect(not alive, f"still alive in the end: {alive}")
        running = [n.name for n in self.nodes if n.lives]
        self.expect(not running, f"launchers that never ended: {running}")
        done = [u for u, v in zip(self.judged, self.verdicts, strict=True) if v.kind == "succeed"]
        self.expect(self.is_leaderless or len(self.verdicts) >= 1, "no verdict")
        self.expect(self.is_leaderless or len(done) == len(set(done)), "a run succeeded twice")
        # A node that was cut off may come to an end of its own: too few are left to go on.
        is_alone = self.is_leaderless or (self.is_disturbed and self.spec.job.is_elastic)
        self.expect(is_alone or len(self.judged) == len(set(self.judged)), "judged twice")
        self._check_calm()

    def _check_calm(self) -> None:
        """Where nothing happens, the job succeeds, or says who is missing."""
        spec = self.spec
        is_rough = spec.crash_share or spec.job.timeout_seconds or "stuck" in spec.term_ways
        if self.is_disturbed or is_rough:
            return
        verdict = self.verdicts[0]  # of whoever came first; latecomers may try once more
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
