"""The Python stacks of all ranks, grouped by where they are. Grouping is pure; py-spy reads them.

py-spy (extra `debug`) needs the right to trace: root, or kernel.yama.ptrace_scope 0, or a rank that
has allowed this launcher to (local/spawn.py). Without it a rank of --debug-ranks writes its own
(local/warm/hook/sitecustomize.py). Without that, what /proc tells stands instead: the kernel's wait
place, and the other end of the connection that a rank waits on.
"""

from __future__ import annotations

import json
import os

from paddock.core.value import replace, value
from paddock.errors import extra_hint
from paddock.local.guardian import yama_scope
from paddock.local.report.text import count, spans
from paddock.watch.debugged import is_debugged, own_numbers, own_stacks
from paddock.watch.procfs import Ends, SeenWait, wait_of, waits_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

DUMP_SECONDS = 2.0  # for all ranks together, where no stop waits for it
SHOWN_RANKS = 8  # named, of a group
SHOWN_GROUPS = 16  # in a line
FRAMES_MAX = 64  # of a stack that is kept
# Functions in which a rank waits for the others. Sources: torch/distributed/distributed_c10d.py,
# paddle/distributed/communication, mpi4py.MPI.Comm, jax.experimental.multihost_utils.
STARTS = ("init_process_group", "init_parallel_env")
COLLECTIVES = (
    *("all_reduce", "allreduce", "all_gather", "allgather", "all_gather_into_tensor"),
    *("all_gather_object", "all_to_all", "alltoall", "alltoall_single", "barrier"),
    *("monitored_barrier", "broadcast", "broadcast_object_list", "bcast", "gather", "reduce"),
    *("reduce_scatter", "reduce_scatter_tensor", "scatter", "send", "recv", "wait", "sendrecv"),
    "backward",  # of torch and paddle: data-parallel ranks exchange gradients in it
    *("sync_global_devices", "process_allgather", "broadcast_one_to_all", *STARTS),
)
# Functions that may take minutes, and are named so: a rank in them works, also where it waits for a
# network or a disk. Debuggers that run in the rank: somebody looks at it.
SLOW_WORDS = (
    *("save", "checkpoint", "download", "compil"),
    *("eval", "valid", "test", "predict", "infer"),
)
NOT_SLOW = "torch/utils/checkpoint.py"  # recomputes activations in every step
DEBUGGERS = {"pdb.py": "pdb", "debugpy": "debugpy", "pydevd.py": "pydevd", "pudb": "pudb"}
NO_PYSPY = "py-spy is not installed"
TOO_SLOW = "py-spy was not ready in time"
DUMPS_AT_ONCE = 4
NO_RIGHT = "no right to trace"
NO_NUMBER = ("", 0, False)
# By kernel.yama.ptrace_scope. Source: Documentation/admin-guide/LSM/Yama.rst.
RIGHTS = {
    "1": "py-spy needs root, or: sudo sysctl kernel.yama.ptrace_scope=0",
    "2": "py-spy needs root: kernel.yama.ptrace_scope is 2",
    "3": "kernel.yama.ptrace_scope is 3: nobody may, until this machine starts again",
}
NO_CAPABILITY = (
    "another user's process, or a container without SYS_PTRACE (docker run --cap-add SYS_PTRACE; "
    "Kubernetes: securityContext.capabilities.add)"
)
LIBRARY_MARKS = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen", "<string>")


@value
class Frame:
    """A call on a stack. path: as the interpreter has it; line: 0 where it is unknown."""

    function: str
    path: str
    line: int = 0

    def __str__(self) -> str:
        place = os.path.basename(self.path)
        return f"{self.function} at {place}:{self.line}" if self.line else self.function


@value
class RankStack:
    """The stack of a rank's main thread, innermost call first; or why there is none.

    wait: the kernel's word for what the main thread waits in, "" while it runs. by: "faulthandler"
    where the rank has written it, "" where py-spy has read it. number: the process group of torch,
    and the number of its collective that the rank is in (True), or was in last; "" if not known.
    """

    rank: int
    frames: tuple[Frame, ...] = ()
    wait: str = ""
    problem: str = ""
    waits: SeenWait = SeenWait()
    by: str = ""
    number: tuple[str, int, bool] = NO_NUMBER

    @property
    def on(self) -> str:
        """The file or connection that the main thread waits on, "" where that is not known."""
        waits = self.waits
        if not waits.peer:
            return waits.call
        other = f"rank {waits.rank}" if waits.rank >= 0 else f"a connection to {waits.peer}"
        return f"{waits.call}: {other}"

    @property
    def collective(self) -> str:
        """The collective operation that the rank is in, "" for none."""
        for frame in self.frames:
            if not _is_library(frame.path):
                return ""
            if frame.function in COLLECTIVES and not _is_standard(frame.path):
                return frame.function
        return ""

    @property
    def is_slow_work(self) -> bool:
        """True in a function that is known to take long, and in no collective."""
        names = (f.function.lower() for f in self.frames if not f.path.endswith(NOT_SLOW))
        return not self.collective and any(word in n for n in names for word in SLOW_WORDS)

    @property
    def debugger(self) -> str:
        """The debugger that runs in the rank and waits for its user, "" for none."""
        parts = {part for frame in self.frames for part in frame.path.split("/")}
        return next((name for part, name in DEBUGGERS.items() if part in parts), "")

    @property
    def place(self) -> str:
        """The rank's place in its code: a collective and the line that called it, or that line."""
        user = next((f for f in self.frames if not _is_library(f.path)), None)
        if user is None:
            return str(self.frames[0]) if self.frames else self.on or self.wait or "running"
        process_group, number, is_in = self.number
        text = f" #{number}" if process_group and is_in else ""
        after = f" after #{number}" if process_group and not is_in else ""
        if self.collective:
            user = replace(user, function=self.collective + text)
        return f"{user}{after}"


def _is_library(path: str) -> bool:
    return any(mark in path for mark in LIBRARY_MARKS)


def _is_standard(path: str) -> bool:
    """True in the standard library: threading and multiprocessing have wait, send and recv, too."""
    return "/lib/python3" in path and "-packages/" not in path


def stack_row(stack: RankStack) -> dict[str, object]:
    """A rank's stack as JSON; stack_of reads it."""
    frames = [{"function": f.function, "path": f.path, "line": f.line} for f in stack.frames]
    waits = stack.waits
    return {
        "rank": stack.rank, "place": stack.place, "frames": frames, "wait": stack.wait,
        "on": stack.on, "problem": stack.problem, "by": stack.by,
        "number": list(stack.number), "waits": {
            "call": waits.call, "peer": waits.peer, "rank": waits.rank, "unread": list(waits.unread)
        },
    }  # fmt: skip


def stack_of(row: Mapping[str, Any]) -> RankStack:
    """The stack in a row of stack_row. Raises LookupError, TypeError, ValueError."""
    frames = (Frame(str(f["function"]), str(f["path"]), int(f["line"])) for f in row["frames"])
    row_waits = row["waits"]
    waits = SeenWait(
        str(row_waits["call"]), str(row_waits["peer"]), int(row_waits["rank"]),
        tuple(map(str, row_waits["unread"])),
    )  # fmt: skip
    process_group, number, is_in = row.get("number", NO_NUMBER)
    return RankStack(
        int(row["rank"]), tuple(frames), str(row["wait"]), str(row["problem"]), waits,
        str(row.get("by", "")), (str(process_group), int(number), bool(is_in)),
    )  # fmt: skip


def with_ranks(stacks: Iterable[RankStack], ends: Mapping[str, int]) -> list[RankStack]:
    """Name the ranks at the other ends of connections. ends: of all nodes (procfs.waits_on)."""
    found = []
    for stack in stacks:
        waits = stack.waits
        if waits.peer:
            waits = replace(waits, rank=ends.get(waits.peer, waits.rank))
        unread = tuple(f"rank {ends[a]} ({a})" if a in ends else a for a in waits.unread)
        found.append(replace(stack, waits=replace(waits, unread=unread)))
    return found


@value
class StackGroup:
    """Ranks that are at the same place."""

    place: str
    ranks: tuple[int, ...]
    collective: str = ""
    number: tuple[str, int, bool] = NO_NUMBER
    has_frames: bool = False


def group(stacks: Iterable[RankStack]) -> tuple[StackGroup, ...]:
    """Group ranks by their place, the largest group first.

    >>> one = Frame("read", "/code/data.py", 12)
    >>> [g.ranks for g in group([RankStack(0, (one,)), RankStack(1, (one,)), RankStack(2)])]
    [(0, 1), (2,)]
    """
    found: dict[str, list[RankStack]] = {}
    for stack in stacks:
        found.setdefault(stack.place, []).append(stack)
    groups = [
        StackGroup(
            place,
            tuple(sorted(s.rank for s in same)),
            same[0].collective,
            same[0].number,
            bool(same[0].frames),
        )
        for place, same in found.items()
    ]
    return tuple(sorted(groups, key=lambda g: (-len(g.ranks), g.ranks)))


def suspects(groups: Sequence[StackGroup]) -> tuple[int, ...]:
    """The ranks that the others wait for: the smallest group outside a collective.

    None where no rank is in a collective. Where every rank is, those in an earlier one than most.

    >>> ahead = StackGroup("all_reduce #41 at t.py:8", (0, 1), "all_reduce", ("0", 41, True))
    >>> suspects([ahead, StackGroup("recv at t.py:9 after #40", (2,), "recv", ("0", 40, False))])
    (2,)
    """
    outside = [g for g in groups if not g.collective]
    if not outside and len({g.number[0] for g in groups}) == 1:
        latest = max(g.number[1] for g in groups)
        behind = [rank for g in groups if g.number[1] < latest for rank in g.ranks]
        return tuple(sorted(behind)) if 2 * len(behind) < sum(len(g.ranks) for g in groups) else ()
    if not outside or len(outside) == len(groups):
        return ()
    return min(outside, key=lambda g: len(g.ranks)).ranks


def differing(groups: Sequence[StackGroup]) -> tuple[int, ...]:
    """The few ranks, a quarter at most, that are elsewhere than all others; () with suspects.

    Neither group need be at fault: one may be in a call that COLLECTIVES lacks.
    """
    if len(groups) != 2 or suspects(groups) or not all(g.has_frames for g in groups):
        return ()
    few, most = sorted((g.ranks for g in groups), key=len)
    return few if 3 * len(few) <= len(most) else ()


def blame_text(
    groups: Sequence[StackGroup], suspects: Sequence[int], differing: Sequence[int]
) -> str:
    """Which ranks of these groups the others wait for, or how some differ; "" for neither.

    >>> both = StackGroup("forward", (0, 1, 2, 3)), StackGroup("read", (4,))
    >>> blame_text(both, (4,), ()), blame_text(both, (), (4,))
    ('the others wait for rank 4', 'rank 4 differs from the others')
    """
    if 0 < len(suspects) < sum(len(g.ranks) for g in groups):
        return f"the others wait for {ranks_text(suspects)}"
    s = "s" if len(differing) == 1 else ""
    return f"{ranks_text(differing)} differ{s} from the others" if differing else ""


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks as people write them: "rank 3", "ranks 0-2,5".

    >>> ranks_text((0, 1, 2, 5)), ranks_text((3,))
    ('ranks 0-2,5', 'rank 3')
    """
    parts = spans(ranks).split(",")
    parts[SHOWN_RANKS:] = ["..."] if len(parts) > SHOWN_RANKS else []
    return f"rank{'s' if len(ranks) > 1 else ''} {','.join(parts)}"


def groups_text(groups: Sequence[StackGroup]) -> str:
    """The groups in one line: "254 x all_reduce at train.py:88 · 1 x read at data.py:12 (rank 37)".

    >>> groups_text((StackGroup("all_reduce at t.py:8", (0, 1), "all_reduce"),
    ...              StackGroup("read at data.py:12", (2,))))
    '2 x all_reduce at t.py:8 · 1 x read at data.py:12 (rank 2)'
    >>> groups_text((StackGroup("barrier", (0,), "barrier"), StackGroup("read", (1,))))
    '1 x barrier (rank 0) · 1 x read (rank 1)'
    """
    sizes = [len(g.ranks) for g in groups]
    others = max(sizes, default=0)  # who they are goes without saying, if the rest is named
    if sizes.count(others) > 1 or len(groups) == 1 < others:
        others += 1
    parts = [
        f"{len(g.ranks)} x {g.place}" + (f" ({ranks_text(g.ranks)})" if size < others else "")
        for g, size in zip(groups, sizes, strict=True)
    ]
    more = len(parts) - SHOWN_GROUPS
    parts[SHOWN_GROUPS:] = [f"and {count(more, 'other place')}"] if more > 0 else []
    return " · ".join(parts)


def groups_row(groups: Sequence[StackGroup], stacks: Iterable[RankStack]) -> dict[str, Any]:
    """The groups as fields of a row, with the stack of the first rank of each as lines."""
    of_rank = {stack.rank: stack.frames for stack in stacks}
    return {
        "groups": [[list(g.ranks), g.place] for g in groups],
        "stacks": [
            [f"{f.function} ({f.path}:{f.line})" for f in of_rank[g.ranks[0]][:FRAMES_MAX]]
            for g in groups
        ],
    }


# ------------------------------------------------------------------- py-spy and faulthandler


def missing_hint(stacks: Iterable[RankStack]) -> str:
    """How to get whole stacks; "" where they are."""
    problems = {stack.problem.partition(":")[0] for stack in stacks}
    if NO_PYSPY in problems:
        pip = f"{extra_hint('debug')} where the ranks run"
        return f"to see functions and lines: {pip}, or launch with --debug-ranks"
    return "to see functions and lines: launch with --debug-ranks" if NO_RIGHT in problems else ""


def find_pyspy(env: Mapping[str, str]) -> str:
    """The path of py-spy: beside this Python, or on PATH; "" without it."""
    import shutil
    import sys

    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return (
        beside if os.access(beside, os.X_OK) else shutil.which("py-spy", path=env.get("PATH")) or ""
    )


def dump(
    pids: Mapping[int, int], pyspy: str, seconds: float = DUMP_SECONDS, *, native: bool = False
) -> tuple[list[RankStack], Ends]:
    """The stacks of ranks, all at once, and their ends of connections to other nodes.

    pids: rank -> pid. Waits for `seconds` at most. native: with the frames of C and C++; the ranks
    stand still for that, about a second each.
    """
    from threading import Thread
    from time import monotonic

    until = monotonic() + seconds
    # Ranks that write their stacks have time for it, also where py-spy hangs.
    pyspy_until = until - (seconds / 4 if any(map(is_debugged, pids.values())) else 0)
    waits = {rank: wait_of(pid) for rank, pid in pids.items()}
    on, ends = waits_on(pids)
    found: dict[int, tuple[tuple[Frame, ...], str]] = {}
    left = iter(pids.items())

    def work() -> None:
        for rank, pid in left:
            argv = [pyspy, "dump", "--json", "--native" if native else "--nonblocking"]
            found[rank] = _frames_of([*argv, "--pid", str(pid)], pyspy_until - monotonic())

    # Not all at once: on a busy machine none would be ready in time.
    threads = [Thread(target=work, daemon=True) for _ in range(min(len(pids), DUMPS_AT_ONCE))]
    for thread in threads if pyspy else ():
        thread.start()
    for thread in threads if pyspy else ():
        thread.join(max(0.0, pyspy_until - monotonic()))
    late: tuple[tuple[Frame, ...], str] = (), TOO_SLOW if pyspy else NO_PYSPY
    lacking = {rank: pid for rank, pid in pids.items() if not found.get(rank, late)[0]}
    own = own_stacks(lacking, (monotonic() + until) / 2)
    numbers = own_numbers(pids, until)
    stacks = []
    for rank in sorted(pids):
        frames, problem = found.get(rank, late)
        if rank in own:
            frames, problem = tuple(Frame(*call) for call in own[rank]), ""
        stacks.append(
            RankStack(
                rank, frames, waits[rank], problem, on.get(rank, SeenWait()),
                "faulthandler" if rank in own else "", numbers.get(rank, NO_NUMBER),
            )
        )  # fmt: skip
    return stacks, ends


def _frames_of(argv: list[str], seconds: float) -> tuple[tuple[Frame, ...], str]:
    """The frames that py-spy prints, or why there are none."""
    from subprocess import DEVNULL, TimeoutExpired, run

    try:
        done = run(argv, stdin=DEVNULL, capture_output=True, timeout=max(0.0, seconds), check=False)
    except (OSError, TimeoutExpired) as error:
        return (), TOO_SLOW if isinstance(error, TimeoutExpired) else str(error)
    frames = parse_dump(done.stdout) if done.returncode == 0 else ()
    return frames, "" if frames else _reason(done.stderr)


def _reason(err: bytes) -> str:
    text = err.decode("utf-8", "replace").strip()
    if "ermission" in text:
        return f"{NO_RIGHT}: {RIGHTS.get(yama_scope(), NO_CAPABILITY)}"
    return text.splitlines()[0][:200] if text else "py-spy found no Python"


def parse_dump(text: bytes) -> tuple[Frame, ...]:
    """The frames of the main thread in py-spy's JSON (py-spy 0.4, dump --json)."""
    try:
        threads = json.loads(text)
        main = next((t for t in threads if t.get("thread_name") == "MainThread"), threads[0])
        return tuple(
            Frame(str(f["name"]), str(f["filename"]), int(f.get("line") or 0))
            for f in main["frames"]
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        return ()
