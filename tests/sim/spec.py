"""What a simulated world is made of, drawn from its seed. Pure: a number in, values out."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from paddock.core.job import Elastic, Entrypoint, Job, Rendezvous, Restart, Role
from paddock.core.value import replace

KINDS = ("fixed", "range", "range", "votes", "votes", "level0", "level1", "ps", "etcd")
CHAOS = (
    "power", "kill", "cut", "cut-in", "cut-out", "signal", "twice", "preempt", "pause", "reset",
)  # fmt: skip
LEAVERS = ("range", "votes", "etcd")  # kinds in which a signal to one node does not end most jobs
LEASE_SECONDS = 3.0


@dataclass(frozen=True)
class Chaos:
    """Something that happens to a node at a time. what: see World.chaos_*."""

    at: float
    what: str
    node: int
    seconds: float = 0.0
    signal: int = 15


@dataclass(frozen=True)
class Spec:
    """One world. joins: when each node's launcher is started; node 0 coordinates first."""

    seed: int
    kind: str
    job: Job
    joins: tuple[float, ...]
    train_seconds: float
    crash_share: float  # of attempts in which some rank fails by itself
    notice_share: float  # of ranks that end when a peer does
    crash_attempts: int  # attempts that may fail
    delay_seconds: float  # longest one-way delay of a message
    has_ranks: bool = False  # every node gives its --rank
    chaos: tuple[Chaos, ...] = ()
    term_ways: tuple[str, ...] = ("die", "save", "fail", "ignore")
    crash_ways: tuple[str, ...] = ("signal", "exit", "traceback", "traceback", "not-found")
    witnesses_max: int = 64
    is_big: bool = False
    reset_share: float = 0.0  # of killed launchers that leave something unread: no orderly close


def draw_spec(seed: int) -> Spec:
    """The world of that seed."""
    rng = Random(seed)
    kind = rng.choice(KINDS)
    job, nodes = _draw_job(rng, kind)
    is_calm = rng.random() < 0.1
    chaos = () if is_calm else _draw_chaos(rng, kind, nodes)
    ways = ("die", "save", "fail", "ignore", "stuck")
    return Spec(
        seed=seed,
        kind=kind,
        job=job,
        joins=_draw_joins(rng, job, nodes),
        train_seconds=rng.choice((0.05, 3.0, 10.0, 30.0)),
        crash_share=0.0 if is_calm else rng.choice((0.0, 0.3, 0.6, 1.0)),
        notice_share=rng.choice((0.0, 0.5, 1.0)),
        crash_attempts=rng.choice((1, 2, 99)),
        delay_seconds=rng.choice((0.0002, 0.005, 0.2)),
        has_ranks=rng.random() < 0.2,
        chaos=chaos,
        term_ways=tuple(rng.choices(ways, weights=(12, 6, 3, 3, 0.6), k=3)),
    )


def _draw_job(rng: Random, kind: str) -> tuple[Job, int]:
    low = rng.randint(1, 4)
    high = low + rng.randint(1, 2) if kind in LEAVERS else low
    low = rng.randint(1, 2) if kind == "votes" else low
    levels = {"level0": 0, "level1": 1, "range": rng.choice((0, 1)), "votes": 1, "etcd": 1}
    level = levels.get(kind, -1)
    worker = Role("worker", rng.randint(1, 3))
    roles = (Role("ps", 1), worker) if kind == "ps" else (worker,)
    job = Job(
        Entrypoint("script", "train.py"),
        mode="ps" if kind == "ps" else "collective",
        nnodes_min=low,
        nnodes_max=high,
        roles=roles,
        rendezvous=Rendezvous(
            "etcd" if kind == "etcd" else "tcp",
            join_timeout_seconds=rng.choice((20.0, 60.0)),
            lease_seconds=LEASE_SECONDS,
        ),
        elastic=Elastic(level, rng.choice((4.0, 10.0))),
        restart=Restart(
            max_restarts=rng.choice((0, 1, 3, 6)),
            backoff_initial_seconds=rng.choice((0.0, 1.0, 6.0)),
            restart_on=rng.choice(((), (), (), (), ("node-lost",), ("signal", "7"))),
        ),
        grace_seconds=rng.choice((0.3, 2.0, 10.0)),
        timeout_seconds=rng.choice((0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 30.0)),
    )
    extra = rng.choice((-1, 0, 1)) if job.is_elastic else rng.choice((0, 0, 0, 0, 0, -1, 1))
    return job, max(1, high + extra)


def _draw_joins(rng: Random, job: Job, nodes: int) -> tuple[float, ...]:
    late = job.rendezvous.join_timeout_seconds * 1.1
    others = (
        rng.uniform(0.0, 0.5) if rng.random() < 0.9 else rng.uniform(0.0, late)
        for _ in range(nodes - 1)
    )
    return (0.0, *others)


def _draw_chaos(rng: Random, kind: str, nodes: int) -> tuple[Chaos, ...]:
    found = []
    end = rng.choice((6.0, 20.0, 45.0))
    moments = [rng.uniform(0.0, end) for _ in range(2)]
    for _ in range(rng.choice((1, 2, 3, 4, 6))):
        what = rng.choice(CHAOS)
        # Node 0 coordinates: spare it mostly, or every world would end the same way.
        is_any = rng.random() < (0.4 if kind in ("votes", "etcd") else 0.1) or nodes == 1
        what = "split" if kind == "votes" and rng.random() < 0.3 else what
        node = rng.randrange(nodes) if is_any else rng.randrange(1, nodes)
        if what in ("signal", "twice") and kind not in LEAVERS:
            what = rng.choice(CHAOS)  # it would end most jobs
        at = rng.uniform(0.0, end) if rng.random() < 0.5 else rng.choice(moments)
        seconds = rng.choice((0.2, 1.5, 2.9, 4.0, 12.0, 1000.0))
        found.append(Chaos(at, what, node, seconds, rng.choice((2, 15))))
        if rng.random() < 0.7:
            found.append(Chaos(at + rng.choice((0.05, 1.0, 3.5, 12.0)), "launch", node))
    if kind == "etcd" and rng.random() < 0.4:
        seconds = rng.choice((3.0, 8.0, 14.0))
        found.append(Chaos(rng.choice(moments), "no-etcd", rng.randrange(nodes), seconds))
    if kind in ("votes", "etcd") and nodes > 2 and rng.random() < 0.5:
        found.append(Chaos(rng.choice(moments), rng.choice(("power", "kill")), 0))
    if rng.random() < 0.15:
        found.append(Chaos(rng.uniform(0.0, end), rng.choice(("signal", "twice")), 0))
    return tuple(sorted(found, key=lambda c: (c.at, c.node)))


def job_of(nnodes: tuple[int, int], kind: str, **fields: object) -> Job:
    """An elastic job of one worker a node."""
    job = Job(
        Entrypoint("script", "train.py"),
        nnodes_min=nnodes[0],
        nnodes_max=nnodes[1],
        roles=(Role("worker", 1),),
        rendezvous=Rendezvous(kind, join_timeout_seconds=60.0, lease_seconds=LEASE_SECONDS),  # type: ignore[arg-type]  # "tcp" or "etcd"
        elastic=Elastic(1, 10.0),
        restart=Restart(max_restarts=3),
        grace_seconds=5.0,
    )
    return replace(job, **fields)


def draw_votes(seed: int) -> Spec:
    """A long job without etcd, in which coordinators die, are cut off and come back."""
    rng = Random(seed)
    low, nodes = rng.choice(((1, 3), (1, 3), (2, 3), (1, 4), (2, 4), (2, 5), (1, 2), (2, 2)))
    job = job_of(
        (low, nodes),
        "tcp",
        elastic=Elastic(1, rng.choice((15.0, 30.0))),
        restart=Restart(max_restarts=20),
        grace_seconds=rng.choice((0.3, 5.0)),
    )
    kinds = (
        "split",
        "split",
        "kill",
        "power",
        "cut",
        "cut-in",
        "cut-out",
        "pause",
        "reset",
        "signal",
    )
    chaos: list[Chaos] = []
    at = 5.0
    for _ in range(rng.choice((1, 2, 3, 5))):
        at += rng.choice((0.05, 1.0, 3.0, 7.0, 15.0)) * rng.uniform(0.7, 1.3)
        node = 0 if rng.random() < 0.4 else rng.randrange(nodes)
        chaos.append(Chaos(at, rng.choice(kinds), node, rng.choice((1.0, 3.5, 5.0, 9.0, 14.0))))
        if rng.random() < 0.6:
            again = at + rng.choice((0.05, 1.0, 2.5, 6.0, 20.0))
            chaos.append(Chaos(again, "launch", node))
    return Spec(
        seed=seed,
        kind="votes",
        job=job,
        joins=tuple(0.1 * i for i in range(nodes)),
        train_seconds=60.0,
        crash_share=rng.choice((0.0, 0.0, 0.5)),
        notice_share=rng.choice((0.0, 1.0)),
        crash_attempts=3,
        delay_seconds=rng.choice((0.001, 0.05, 0.2)),
        chaos=tuple(sorted(chaos, key=lambda c: (c.at, c.node))),
        term_ways=rng.choice((("die",), ("ignore",), ("die", "save", "ignore"))),
        crash_ways=("exit",),
        reset_share=rng.choice((0.0, 0.0, 0.5)),
    )


def big_spec(agents: int, seed: int) -> Spec:
    """One job of that many nodes: a rank fails, everything restarts and then succeeds."""
    rng = Random(seed)
    restart = Restart(max_restarts=1)
    job = job_of((agents, agents), "tcp", elastic=Elastic(), restart=restart, grace_seconds=2.0)
    return Spec(
        seed=seed,
        kind="fixed",
        job=job,
        joins=(0.0, *(rng.uniform(0.0, 2.0) for _ in range(agents - 1))),
        train_seconds=10.0,
        crash_share=1.0,
        notice_share=0.01,
        crash_attempts=1,
        delay_seconds=0.001,
        term_ways=("die", "save"),
        crash_ways=("traceback",),
        is_big=True,
    )
