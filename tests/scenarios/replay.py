"""Replays a transcript: commands go to a real state machine, what it does is written down.

A transcript is prose and blocks. A block is a command, a line ``----`` and what is expected::

    @1.5 exit 2 worker 1 code=7
    ----
    stopping
      Stop attempt 0 on 1 2: worker 1 on b exited with code 7

``@1.5`` sets the clock; without it time stands still. Lines that start no block are prose.
The first command says what the machine is: ``job ...`` (membership) or ``node ...`` (supervisor).
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from paddock.core import membership_words as m
from paddock.core import supervisor as s
from paddock.core.exits import Exit
from paddock.core.hosts import Host
from paddock.core.job import Command, Elastic, Job, Rendezvous, Restart, Role, Servers
from paddock.core.membership import Membership

if TYPE_CHECKING:
    from paddock.core.policy import Verdict

RULE = "----"


def replay(text: str) -> str:
    """The transcript with its expectations replaced by what happens now."""
    lines = text.split("\n")
    out: list[str] = []
    machine: MembershipReplay | SupervisorReplay | None = None
    at = 0
    while at < len(lines):
        line = lines[at]
        out.append(line)
        at += 1
        if at >= len(lines) or lines[at] != RULE:
            continue
        out.append(RULE)
        at += 1
        while at < len(lines) and lines[at]:
            at += 1
        words = shlex.split(line)
        now = float(words.pop(0)[1:]) if words[0].startswith("@") else None
        if machine is None:
            machine = MembershipReplay(words) if words[0] == "job" else SupervisorReplay(words)
            out.append("ok")
        else:
            out += machine.do(words, now)
    assert machine is not None, "a transcript without commands"
    return "\n".join(out)


def options(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Words and ``name=value`` pairs, apart; a bare flag is a word."""
    plain = [w for w in words if "=" not in w]
    return plain, dict(w.split("=", 1) for w in words if "=" in w)


def read_exit(words: list[str], now: float, attempt: int, node_rank: int, host: str) -> Exit:
    """``exit ROLE RANK [code= signal= cause= at= error= after= doubt=] [by_us] [peer_loss]``.

    at, error: seconds; after, doubt: milliseconds.
    """
    plain, given = options(words)
    at = float(given.get("at", now))
    number = int(given.get("signal", 0))
    return Exit(
        role=plain[0],
        rank=int(plain[1]),
        node_rank=node_rank,
        host=host,
        attempt=int(given.get("attempt", attempt)),
        at_ns=round(at * 1e9),
        code=int(given.get("code", 0)),
        signal=number,
        cause=given.get("cause", "signal" if number else "exit"),
        by_us="by_us" in plain,
        after_signal_ns=round(float(given.get("after", 0)) * 1e6),
        peer_loss="peer_loss" in plain,
        uncertainty_ns=round(float(given.get("doubt", 0)) * 1e6),
        error_at_ns=round(float(given.get("error", 0)) * 1e9),
        tail=given.get("tail", ""),
    )


class MembershipReplay:
    """``job`` and then join, exit, stopped, lost, leave, timer."""

    def __init__(self, words: list[str]) -> None:
        _, given = options(words)
        self.now = 0.0
        self.job = read_job(given)
        self.machine = Membership(
            self.job,
            0.0,
            first_attempt=int(given.get("first_attempt", 0)),
            awaited=int(given.get("awaited", 0)),
        )
        self.hosts: dict[int, Host] = {}
        self.places: dict[int, int] = {}

    def do(self, words: list[str], now: float | None) -> list[str]:
        self.now = self.now if now is None else now
        event = self._event(words)
        actions = self.machine.handle(event, self.now)
        lines = [self.machine.phase]
        for action in actions:
            lines.append("  " + self._shown(action))
            if isinstance(action, m.Start):
                self.places = {member: place for place, member in enumerate(action.members)}
        return lines

    def _event(self, words: list[str]) -> m.Event:
        what = words.pop(0)
        if what == "timer":
            return m.TimerFired()
        member = int(words.pop(0))
        plain, given = options(words)
        if what == "join":
            return self._joined(member, plain, given)
        if what == "exit":
            host = self.hosts[member].name
            place = self.places.get(member, 0)
            exit_ = read_exit(words, self.now, self.machine.attempt, place, host)
            return m.ExitReported(member, exit_)
        if what == "stopped":
            attempt = int(given.get("attempt", self.machine.attempt))
            return m.Stopped(member, attempt, self.hosts[member])
        if what == "lost":
            gone_at = float(given.get("gone_at", 0.0))
            return m.Lost(member, round(self.now * 1e9), " ".join(plain), gone_at)
        assert what == "leave", what
        return m.LeaveAsked(member, int(plain[0]), "hurry" in plain)

    def _joined(self, member: int, plain: list[str], given: dict[str, str]) -> m.Joined:
        name = plain[0]
        workers = int(given.get("workers", self.job.roles[-1].count or 1))
        slots = tuple(
            (r.name, r.stage, workers if r.name == "worker" else r.count or 1)
            for r in self.job.roles
        )
        host = Host(
            name,
            given.get("address", f"10.0.0.{member}"),
            slots=slots,
            ports=tuple(range(6170, 6170 + sum(c for _, _, c in slots))),
        )
        self.hosts[member] = host
        rank = int(given["rank"]) if "rank" in given else None
        return m.Joined(member, host, given.get("key", name), rank, "self" in plain)

    def _shown(self, action: m.Action) -> str:
        if isinstance(action, m.Start):
            members = " ".join(
                f"{member}={host.name}"
                for member, host in zip(action.members, action.hosts, strict=True)
            )
            return f"Start attempt {action.attempt}: {members}"
        if isinstance(action, m.Stop):
            members = " ".join(str(i) for i in action.members) or "nobody"
            hurry = ", hurry" if action.hurry else ""
            return f"Stop attempt {action.attempt} on {members}: {action.reason}{hurry}"
        if isinstance(action, m.Refuse):
            return f"Refuse {action.member} with {action.exit_code}: {action.message}"
        if isinstance(action, m.Release):
            return f"Release {action.member}: {shown_verdict(action.verdict)}"
        if isinstance(action, m.Finish):
            return f"Finish: {shown_verdict(action.verdict)}"
        if isinstance(action, m.SetTimer):
            return f"SetTimer {'never' if action.at is None else format(action.at, 'g')}"
        return f"Note {action.text}"


class SupervisorReplay:
    """``node RANK... [servers= restarts=]`` and then exit, stop, timer.

    servers: how many servers of Paddock's own the node runs besides the workers.
    """

    def __init__(self, words: list[str]) -> None:
        plain, given = options(words[1:])
        self.now = 0.0
        self.attempt = int(given.get("attempt", 0))
        keys = [("ps", rank) for rank in range(int(given.get("servers", 0)))]
        keys += [("worker", int(rank)) for rank in plain]
        own = Servers(is_provided=True, max_restarts=int(given.get("restarts", 3)))
        self.machine = s.Supervisor(
            self.attempt,
            keys,
            grace_seconds=float(given.get("grace", 10.0)),
            servers=own if "servers" in given else None,
        )

    def do(self, words: list[str], now: float | None) -> list[str]:
        self.now = self.now if now is None else now
        actions = self.machine.handle(self._event(words), self.now)
        return [self.machine.phase, *("  " + shown_order(a) for a in actions)]

    def _event(self, words: list[str]) -> s.Event:
        what = words.pop(0)
        plain, given = options(words)
        if what == "timer":
            return s.TimerFired()
        if what == "stop":
            return s.StopOrdered(
                int(given.get("attempt", self.attempt)),
                plain[0],
                "hurry" in plain[1:],
                float(given["grace"]) if "grace" in given else None,
            )
        assert what == "exit", what
        return read_exit(words, self.now, self.attempt, 0, "a")


def shown_order(action: s.Action) -> str:
    """One action of a supervisor."""
    if isinstance(action, s.Report):
        return f"Report {action.exit.name}: {action.exit.how}{', by us' * action.exit.by_us}"
    if isinstance(action, s.StartAgain):
        return f"StartAgain {action.exit.name}, {action.count}: {action.exit.how}"
    if isinstance(action, s.NotAgain):
        return f"NotAgain {action.exit.name}: {action.exit.how}"
    if isinstance(action, s.SignalGroup):
        return f"Signal {' '.join(map(str, action.key))}: {action.signal}"
    if isinstance(action, s.SetTimer):
        return f"SetTimer {action.at:g}"
    if isinstance(action, s.Ended):
        return f"Ended attempt {action.attempt}: {len(action.exits)} exits"
    return "Sweep"


def read_job(given: dict[str, str]) -> Job:
    """The job of a ``job`` line, by the names of the flags."""
    low, _, high = given.get("nnodes", "1").partition(":")
    roles = [Role("worker", int(given.get("workers", 1)))]
    if "servers" in given:
        roles.insert(0, Role("ps", int(given["servers"])))
    backoff, _, most = given.get("backoff", "1:60").partition(":")
    return Job(
        Command("script", "train.py"),
        mode="ps" if "servers" in given else "collective",
        nnodes_min=int(low),
        nnodes_max=int(high or low),
        roles=tuple(roles),
        rendezvous=Rendezvous(
            "tcp",
            ips=tuple(given["ips"].split(",")) if "ips" in given else (),
            join_timeout_seconds=float(given.get("join_timeout", 300)),
        ),
        elastic=Elastic(
            int(given.get("elastic_level", -1)), float(given.get("elastic_timeout", 30))
        ),
        restart=Restart(
            max_restarts=int(given.get("max_restart", 0)),
            backoff_initial_seconds=float(backoff),
            backoff_max_seconds=float(most or 60),
            healthy_seconds=float(given.get("healthy", 600)),
            restart_on=tuple(given["restart_on"].split(",")) if "restart_on" in given else (),
        ),
        grace_seconds=float(given.get("grace", 10)),
        timeout_seconds=float(given.get("timeout", 0)),
    )


def shown_verdict(verdict: Verdict) -> str:
    """A verdict in one line."""
    clean = ", clean" if verdict.clean else ""
    restarts = f", restarts {verdict.restarts}" if verdict.restarts else ""
    culprit = verdict.culprit
    who = f", because {culprit.name} on {culprit.host} {culprit.how}" if culprit else ""
    reason = f" ({verdict.reason})" if verdict.reason else ""
    start = f"{verdict.kind} {verdict.exit_code} in attempt {verdict.attempt}"
    return f"{start}{clean}{restarts}{who}{reason}"
