"""Situations of a job, and what the detector says about them: a stall, a notice, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from paddock.watch.procfs import ProcessFacts
from paddock.watch.stacks import Frame, RankStack
from paddock.watch.stalls import (
    AskStacks,
    RankHeld,
    RankLook,
    RankReleased,
    StallDetector,
    StallEnded,
    StallFound,
)

TRAIN = Frame("main", "/code/train.py", 88)
REDUCE = (Frame("all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 4), TRAIN)
STALL_AFTER = 600.0

# What a rank does in one second: (share of a core, bytes, log bytes, step or None, state, stack)
Second = tuple[float, int, int, int | None, str, tuple[Frame, ...]]
Script = Callable[[int, int], Second]  # of (rank, second)


def training(second: int, every: int = 1) -> Second:
    return (0.9, 10_000, 40 if second % every == 0 else 0, second // every, "S", REDUCE)


def waiting(step: int | None = 99) -> Second:
    return (0.0, 0, 0, step, "S", REDUCE)


def stuck(cpu: float, name: str = "read_shard", *, step: int | None = 99, state: str = "S",
          bytes_: int = 0) -> Second:  # fmt: skip
    return (cpu, bytes_, 0, step, state, (Frame(name, "/code/data.py", 12), TRAIN))


def replay(script: Script, seconds: int, ranks: int = 4, tracer: int = 0) -> list[object]:
    """Run a script of looks; returns what was said, with the seconds."""
    detector = StallDetector(STALL_AFTER)
    cpu, moved, logs = [0.0] * ranks, [0] * ranks, [0] * ranks
    said: list[object] = []
    for now in range(seconds):
        looks, stacks = [], []
        for rank in range(ranks):
            share, bytes_, log, step, state, stack = script(rank, now)
            cpu[rank] += share
            moved[rank] += bytes_
            logs[rank] += log if rank == 0 else 0
            facts = ProcessFacts(state, cpu[rank], 1 << 30, moved[rank], 0, (100 + rank,))
            shown = step if rank == 0 else None
            looks.append(RankLook(rank, facts, logs[rank], shown, tracer if state == "t" else 0))
            stacks.append(RankStack(rank, stack))
        todo = detector.look(float(now), looks)
        for action in todo:
            if isinstance(action, AskStacks):
                todo += detector.take_stacks(float(now), stacks)
            else:
                said.append((now, action))
    return said


def then(begins: int, after: Callable[[int, int], Second], every: int = 1) -> Script:
    """Training that prints a step every so many seconds, and something else from a second on."""
    return lambda rank, second: training(second, every) if second < begins else after(rank, second)


def evaluation(_rank: int, second: int) -> Second:
    return stuck(1.0, f"layer{second % 7}")


STALLS: list[tuple[str, Script, int]] = [
    ("a rank sleeps in a loop", then(100, lambda r, _s: stuck(0.0) if r == 2 else waiting()), 60),
    ("a rank computes in a loop", then(100, lambda r, _s: stuck(1.0) if r == 2 else waiting()), 60),
    ("a rank waits for a pipe", then(100, lambda r, _s: stuck(0.0) if r == 2 else waiting()), 60),
    ("a rank holds its own lock", then(100, lambda r, _s: stuck(0.0) if r == 2 else waiting()), 60),
    ("all are in a collective", then(100, lambda _r, _s: waiting()), 60),
    ("all spin in a collective", then(100, lambda _r, _s: (1.0, 0, 0, 99, "R", REDUCE)), 60),
    ("a step took 5 s before", then(100, lambda r, _s: stuck(0.0) if r == 2 else waiting(), 5), 60),
    ("a disk does not answer", then(100, lambda r, _s: stuck(0.0, state="D") if r == 0
                                    else waiting()), 60),
    ("ranks never meet", lambda r, _s: (0.0, 0 if r else 4700, 0, None, "S", (  # its TCPStore
        Frame("init_process_group", "/x/site-packages/torch/c10d.py", 1), TRAIN)), 90),
]  # fmt: skip
QUIET: list[tuple[str, Script]] = [
    ("training", training_ := (lambda _r, s: training(s))),
    ("a step a minute", lambda _r, s: training(s, 60)),
    ("a long first step compiles", lambda _r, s: (1.0, 0, 0, None, "R", REDUCE)),
    ("a long first step downloads", lambda r, _s: stuck(0.1, bytes_=1 << 20, step=None)
     if r == 0 else waiting(None)),
    ("imports", lambda _r, _s: (1.0, 1 << 20, 0, None, "R", (TRAIN,))),
    ("evaluation by all", then(100, evaluation)),
    ("evaluation by rank 0", then(100, lambda r, s: evaluation(r, s) if r == 0 else waiting())),
    ("a checkpoint of 5 minutes", then(100, lambda r, _s: stuck(0.0, "save", state="D",
                                       bytes_=1 << 24) if r == 0 else waiting())),
    ("a checkpoint over the network", then(100, lambda r, _s: stuck(0.0, "save_checkpoint")
                                           if r == 0 else waiting())),
    ("an evaluation in one kernel", then(100, lambda r, _s: stuck(1.0, "evaluate")
                                         if r == 0 else waiting())),
    ("an evaluation, and no py-spy", then(100, lambda r, _s: (1.0, 0, 0, 99, "R", ())
                                          if r == 0 else (0.0, 0, 0, 99, "S", ()))),
    ("an evaluation on a machine that is overloaded", then(
        100, lambda r, s: stuck(0.1, f"layer{s % 7}", state="R") if r == 0 else waiting())),
    ("a compiler", then(100, lambda r, _s: stuck(1.0, "backend_compile")
                        if r == 0 else waiting())),
    ("the test of an example", then(100, lambda r, _s: stuck(1.0, "test")
                                    if r == 0 else waiting())),
    ("pdb in a rank", then(100, lambda r, _s: (0.0, 0, 0, 99, "S", (
        Frame("interaction", "/usr/lib/python3.11/pdb.py", 4), TRAIN)) if r == 0 else waiting())),
    ("a debugger", then(100, lambda r, _s: stuck(0.0, state="t") if r == 1 else waiting())),
    ("SIGSTOP", then(100, lambda r, _s: stuck(0.0, state="T") if r == 1 else waiting())),
    ("a silent script that computes", lambda r, s: stuck(1.0, f"f{s % 5}", step=None)),
    ("a server waits for requests", lambda _r, _s: stuck(0.0, "poll", step=None)),
]  # fmt: skip


@pytest.mark.parametrize(("script", "within"), [s[1:] for s in STALLS], ids=[s[0] for s in STALLS])
def test_a_stall_is_found(script: Script, within: int) -> None:
    said = replay(script, 400)
    found = [(at, action) for at, action in said if isinstance(action, StallFound)]  # type: ignore[misc]
    assert len(found) == 1, said
    at = found[0][0]
    assert at <= 100 + within


@pytest.mark.parametrize("script", [s[1] for s in QUIET], ids=[s[0] for s in QUIET])
def test_no_stall_is_told_where_there_is_none(script: Script) -> None:
    said = replay(script, 400, tracer=77)
    assert not [x for x in said if isinstance(x[1], StallFound)], said  # type: ignore[index]


@pytest.mark.parametrize(("state", "tracer"), [("T", 0), ("t", 77)])
def test_a_rank_that_its_user_holds_is_told_once(state: str, tracer: int) -> None:
    script = then(100, lambda r, _s: stuck(0.0, state=state) if r == 1 else waiting())
    said = replay(script, 300, tracer=77)
    assert said == [(110, RankHeld(1, 10.0, tracer))]


def test_a_rank_that_its_user_lets_go_on_is_told() -> None:
    script = then(
        100,
        lambda r, s: (
            stuck(0.0, state="T") if r == 1 and s < 200 else waiting() if s < 200 else training(s)
        ),
    )
    assert replay(script, 300) == [(110, RankHeld(1, 10.0)), (200, RankReleased(1))]


def test_a_rank_that_was_held_has_time_to_move() -> None:
    """Looks right after its release saw 100 s in which nothing had moved, and a stall."""
    script = then(
        100,
        lambda r, s: (
            stuck(0.0, state="T") if r == 1 and s < 200 else waiting() if s < 205 else training(s)
        ),
    )
    assert replay(script, 300) == [(110, RankHeld(1, 10.0)), (200, RankReleased(1))]


def test_a_rank_in_pdb_is_told_once() -> None:
    script = then(
        100,
        lambda r, _s: (
            (0.0, 0, 0, 99, "S", (Frame("interaction", "/usr/lib/python3.11/pdb.py", 4), TRAIN))
            if r == 1
            else waiting()
        ),
    )
    ((at, held),) = replay(script, 300)  # type: ignore[misc]
    assert held == RankHeld(1, at - 99.0, debugger="pdb")


def test_a_rank_that_has_just_left_pdb_moves() -> None:
    """No look had seen that yet: the 200 s in pdb were told as a stall."""
    pdb = (Frame("interaction", "/usr/lib/python3.11/pdb.py", 4), TRAIN)
    script = then(
        100,
        lambda r, now: (0.0, 0, 0, 99, "S", pdb) if r == 1 and now < 300 else waiting(),
    )
    held, *found = replay(script, 320)
    assert [action for _, action in found] == [RankReleased(1)], held  # type: ignore[misc]


def test_a_checkpoint_that_never_ends_is_told_after_the_limit() -> None:
    script = then(100, lambda r, _s: stuck(0.0, "save") if r == 0 else waiting())
    said = replay(script, 800)
    assert [type(action) for _, action in said] == [StallFound]  # type: ignore[misc]
    assert said[0][0] >= 99 + STALL_AFTER  # type: ignore[index]


def test_recomputed_activations_are_no_checkpoint() -> None:
    again = Frame("checkpoint", "/x/site-packages/torch/utils/checkpoint.py", 4)
    assert not RankStack(0, (Frame("matmul", "/code/model.py", 3), again, TRAIN)).is_slow_work


def test_the_end_of_a_stall_is_told() -> None:
    script: Script = lambda r, s: training(s) if s < 100 or s >= 200 else waiting()  # noqa: E731  # a table's row
    kinds = [type(action) for _, action in replay(script, 250)]  # type: ignore[misc]
    assert kinds == [StallFound, StallEnded]


def test_a_silent_start_is_told_after_the_limit() -> None:
    said = replay(lambda _r, _s: stuck(0.0, "poll", step=None), 700)
    assert [(at, type(action)) for at, action in said] == [(int(STALL_AFTER), StallFound)]  # type: ignore[misc]


def test_a_new_attempt_is_no_stall() -> None:
    detector = StallDetector(STALL_AFTER)
    look: Sequence[RankLook] = [RankLook(0, None)]
    detector.look(0.0, look)
    detector.begin()
    assert detector.look(1000.0, look) == []


@pytest.mark.parametrize("ranks", [(), (0, 1)])
def test_a_node_without_ranks_does_not_stall(ranks: tuple[int, ...]) -> None:
    """It has servers only, or its ranks have ended before those of other nodes."""
    detector = StallDetector(STALL_AFTER)
    facts = ProcessFacts("S", 0.0, 1 << 30, 0, 0, 0)
    for now in range(100):
        detector.look(float(now), [RankLook(rank, facts, now) for rank in ranks])
    said = [detector.look(100.0 + now, [RankLook(rank, None, 99) for rank in ranks])
            for now in range(1000)]  # fmt: skip
    assert not any(said)


def test_a_stall_is_over_once_all_ranks_have_ended() -> None:
    detector = StallDetector(STALL_AFTER)
    facts, found = ProcessFacts("S", 0.0, 1 << 30, 0, 0, 0), list[object]()
    for now in range(300):
        look = RankLook(0, facts if now < 200 else None, min(now, 100))
        for action in detector.look(float(now), [look]):
            if isinstance(action, AskStacks):
                found += detector.take_stacks(float(now), [RankStack(0, (TRAIN,))])
            else:
                found.append(action)
    assert [type(action) for action in found] == [StallFound, StallEnded]
