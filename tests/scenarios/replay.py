"""Replays a transcript: commands go to a real state machine, what it does is written down.

A transcript is prose and blocks. A block is a command, a line ``----`` and what is expected::

    @1.5 exit 2 worker 1 code=7
    ----
    stopping
      Stop attempt 0 on 1 2: worker 1 on b exited with code 7

``@1.5`` sets the clock; without it time stands still. Lines that start no block are prose.
The first command says what the machine is: ``job ...`` (membership), ``node ...`` (supervisor) or
``sweep ...`` (sweeps.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.core.attempt import supervisor as s
from paddock.core.attempt.exits import Exit
from paddock.core.hosts import Host
from paddock.core.job import Elastic, Entrypoint, Job, Rendezvous, Restart, Role, Servers
from paddock.core.rendezvous import messages as m
from paddock.core.rendezvous.membership import Membership
from paddock.core.rendezvous.quorum import LeaderHandoff
from scenarios.sweeps import SweepReplay
from transcript import Do, replayed

if TYPE_CHECKING:
    from paddock.core.attempt.policy import Verdict


def replay(text: str) -> str:
    """The transcript with its expectations replaced by what happens now."""

    def begin(words: list[str]) -> Do:
        kinds = {"job": MembershipReplay, "sweep": SweepReplay}
        machine = kinds.get(words[0], SupervisorReplay)(words)

        def do(words: list[str]) -> list[str]:
            now = float(words.pop(0)[1:]) if words[0].startswith("@") else None
            return machine.do(words, now)

        return do

    return replayed(text, begin)


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
            uid="u1d",
            handoff=read_inherited(given) if "awaited" in given else None,
        )
        self.hosts: dict[int, Host] = {}
        self.places: dict[int, int] = {}

    def do(self, words: list[str], now: float | None) -> list[str]:
        self.now = self.now if now is None else now
        event = self._event(words)
        actions = self.machine.handle(event, self.now)
        lines: list[str] = [self.machine.phase]
        for action in actions:
            if not isinstance(action, m.Close):  # after the last word to a member
                lines.append("  " + shown_action(action))
            if isinstance(action, m.Send) and isinstance(action.message, m.Start):
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
            return m.Received(member, m.Exited(exit_))
        if what == "stopped":
            attempt = int(given.get("attempt", self.machine.attempt))
            return m.Received(member, m.Stopped(attempt, self.hosts[member]))
        if what == "started":
            return m.Received(member, m.Started(self.machine.attempt, int(plain[0])))
        if what == "cannot":
            return m.Received(member, m.CannotRun(" ".join(plain), 2))
        if what == "lost":
            gone_at = float(given.get("gone_at", 0.0))
            ending, *detail = plain or ["closed"]
            at_ns = round(self.now * 1e9)
            return m.Lost(member, at_ns, ending, " ".join(detail), gone_at)  # type: ignore[arg-type]  # read from text
        if what == "claim":
            run, attempt = given.get("run", "u1d"), int(given["attempt"])
            begun, settled = "begun" in plain, "unsettled" not in plain
            shape = (("the script", given.get("script", "train.py")),)
            claim = m.LeaderConflict(
                run, attempt, begun, settled, plain[0], "10.0.0.9", 7009, shape
            )
            return m.Received(member, claim)
        if what == "give_way":
            return m.GiveWay(m.HandOver(9, (plain[0],), "10.0.0.9", 7009, m.Budget()))
        if what == "warn":
            return m.Received(member, m.Warn(" ".join(plain)))
        if what == "stalled":
            is_suspect = plain[:1] == ["suspect"]
            text = " ".join(plain[is_suspect:])
            return m.Received(member, m.Stalled(text, is_suspect), attempt=self.machine.attempt)
        assert what == "leave", what
        lost = next((word for word in plain if word in m.LOSSES), "")
        return m.Received(member, m.Leave(int(plain[0]), "force" in plain, lost))  # type: ignore[arg-type]  # read from text

    def _joined(self, member: int, plain: list[str], given: dict[str, str]) -> m.Received:
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
        listen_port = int(given.get("listen_port", 0))
        started, by = int(given.get("started", -1)), given.get("coordinator_key", "")
        join = m.Join(
            host,
            given.get("key", name),
            rank,
            listen_port=listen_port,
            started=started,
            coordinator_key=by,
        )
        return m.Received(member, join, "self" in plain)


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
            return m.Stop(
                int(given.get("attempt", self.attempt)),
                plain[0],
                "force" in plain[1:],
                float(given["grace"]) if "grace" in given else None,
            )
        assert what == "exit", what
        return read_exit(words, self.now, self.attempt, 0, "a")


def shown_action(action: m.Action) -> str:
    """One action of a membership."""
    if isinstance(action, m.SetTimer):
        return f"SetTimer {'never' if action.at is None else format(action.at, 'g')}"
    if isinstance(action, m.End):
        if action.outdated:
            return f"Outdated: {action.outdated}"
        return f"{'Ends here' if action.handed_over else 'Finish'}: {shown_verdict(action.verdict)}"
    if isinstance(action, m.Close):
        return f"Close {action.member}"
    message = action.message
    members = " ".join(str(i) for i in action.members) or "nobody"
    if isinstance(message, m.Start):
        pairs = zip(action.members, message.hosts, strict=True)
        names = " ".join(f"{i}={host.name}" for i, host in pairs)
        return f"Start attempt {message.attempt}: {names}"
    if isinstance(message, m.Stop):
        force = ", force" if message.force else ""
        grace = "" if message.grace_seconds is None else f", within {message.grace_seconds:g} s"
        return f"Stop attempt {message.attempt} on {members}: {message.reason}{force}{grace}"
    if isinstance(message, m.Committed):
        return f"Committed attempt {message.attempt} on {members}"
    if isinstance(message, m.Reject):
        return f"Reject {members} with {message.exit_code}: {message.message}"
    if isinstance(message, m.JobEnded):
        return f"JobEnded for {members}: {shown_verdict(message.verdict)}"
    if isinstance(message, m.HandOver):
        budget = shown_budget(message.budget)
        return (
            f"HandOver to {members}: attempt {message.attempt}, {','.join(message.keys)}; {budget}"
        )
    assert isinstance(message, m.Notice)
    return f"Notice {message.text}"


def shown_budget(budget: m.Budget) -> str:
    """What a job has used up."""
    left = "" if budget.seconds_left is None else f", {budget.seconds_left:g} s left"
    return f"{budget.used_restarts} restarts used of late, {budget.total_restarts} in all{left}"


def read_inherited(given: dict[str, str]) -> LeaderHandoff:
    """``awaited=a,b [first_attempt= used= restarts= left= gone_at= coordinator_key= gone=]``.

    by: they, and it, are the voters of the attempt before.
    """
    left = float(given["left"]) if "left" in given else None
    budget = m.Budget(int(given.get("used", 0)), int(given.get("restarts", 0)), left)
    keys = tuple(given["awaited"].split(","))
    gone_at = float(given.get("gone_at", 0))
    first, by = int(given.get("first_attempt", 0)), given.get("coordinator_key", "")
    all_keys = tuple(dict.fromkeys((*([by] if by else []), *keys)))
    count = len(all_keys)
    voters = m.Voters(first - 1, all_keys, ("10.0.0.1",) * count, (7001,) * count, by)
    gone = tuple(filter(None, given.get("gone", "").split(",")))
    return LeaderHandoff(
        first, keys, budget, gone_at, by, gone_at, voters=(voters,) if by else (), gone=gone
    )


def shown_order(action: s.Action) -> str:
    """One action of a supervisor."""
    if isinstance(action, s.ReportExit):
        return f"ReportExit {action.exit.name}: {action.exit.how}{', by us' * action.exit.by_us}"
    if isinstance(action, s.RestartServer):
        return f"RestartServer {action.exit.name}, {action.count}: {action.exit.how}"
    if isinstance(action, s.ServerGivenUp):
        return f"ServerGivenUp {action.exit.name}: {action.exit.how}"
    if isinstance(action, s.SignalGroup):
        return f"Signal {' '.join(map(str, action.key))}: {action.signal}"
    if isinstance(action, s.SetTimer):
        return f"SetTimer {action.at:g}"
    if isinstance(action, s.AttemptEnded):
        return f"AttemptEnded attempt {action.attempt}: {len(action.exits)} exits"
    return "KillDescendants"


def read_job(given: dict[str, str]) -> Job:
    """The job of a ``job`` line, by the names of the flags."""
    low, _, high = given.get("nnodes", "1").partition(":")
    roles = [Role("worker", int(given.get("workers", 1)))]
    if "servers" in given:
        roles.insert(0, Role("ps", int(given["servers"])))
    backoff, _, most = given.get("backoff", "1:60").partition(":")
    return Job(
        Entrypoint("script", "train.py"),
        mode="ps" if "servers" in given else "collective",
        nnodes_min=int(low),
        nnodes_max=int(high or low),
        roles=tuple(roles),
        rendezvous=Rendezvous(
            given.get("master", "tcp"),  # type: ignore[arg-type]  # read from text
            ips=tuple(given["ips"].split(",")) if "ips" in given else (),
            join_timeout_seconds=float(given.get("join_timeout", 300)),
        ),
        elastic=Elastic(
            int(given.get("elastic_level", 1 if high else -1)),
            float(given.get("elastic_timeout", 30)),
            int(given.get("wanted", 0)),
        ),
        restart=Restart(
            max_restarts=int(given.get("max_restart", 0)),
            backoff_initial_seconds=float(backoff),
            backoff_max_seconds=float(most or 60),
            healthy_seconds=float(given.get("healthy", 600)),
            restart_on=tuple(given["restart_on"].split(",")) if "restart_on" in given else (),
        ),
        grace_seconds=float(given.get("grace", 10)),
        on_stall=given.get("on_stall", "report"),
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
    warnings = "".join(f"; {text}" for text in verdict.warnings)
    return f"{start}{clean}{restarts}{who}{reason}{warnings}"
