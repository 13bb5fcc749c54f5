"""Files are assigned to workers before the job starts. Pure.

The plan is the same on every node, and checked: each file has one worker, each worker a file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import pairwise

from paddock.data.chunks import DataFile, even_edges
from paddock.errors import Problem, UsageError

# train.txt-00012, part-12, part-00003.txt, part-7.txt.gz: the last number of the name.
SUFFIX = re.compile(r"(\d+)(?:\.[A-Za-z]\w*)*$")
UNEVEN_RATIO = 1.5


@dataclass(frozen=True)
class Assignment:
    """The plan. parts: for each worker its files, in the order in which it reads them.

    repeated: the files stand with several workers, since there are fewer than workers.
    """

    rule: str
    parts: tuple[tuple[DataFile, ...], ...]
    repeated: bool = False

    def bytes_of(self, worker: int) -> int:
        """The bytes that a worker reads."""
        return sum(piece.size for piece in self.parts[worker])

    def table(self) -> list[tuple[str, ...]]:
        """Rows to print: worker, files, bytes, and the names, shortened."""
        rows: list[tuple[str, ...]] = [("worker", "files", "bytes", "which")]
        for worker, pieces in enumerate(self.parts):
            names = [piece.path.rpartition("/")[2] for piece in pieces]
            which = " ".join(names if len(names) <= 4 else [*names[:2], "...", names[-1]])
            rows.append((str(worker), str(len(pieces)), str(self.bytes_of(worker)), which))
        return rows

    def remarks(self) -> list[str]:
        """Remarks for people about the plan, a sentence each."""
        sizes = [self.bytes_of(worker) for worker in range(len(self.parts))]
        found = []
        if self.repeated:
            found.append(
                "there are fewer files than workers: some files are read by several workers"
            )
        mean = sum(sizes) / len(sizes)
        if mean and max(sizes) > UNEVEN_RATIO * mean:
            worker = sizes.index(max(sizes))
            found.append(
                f"worker {worker} reads {max(sizes) / mean:.1f} times the mean: the others wait "
                "for it at the end of each pass"
            )
        return found


def assign(
    pieces: Sequence[DataFile], workers: int, rule: str = "blocks", *, repeat: bool = False
) -> Assignment:
    """Deal the files out by a rule of RULES.

    repeat: with fewer files than workers, the workers go round and share them, instead of an error.

    >>> plan = assign([DataFile("a-0"), DataFile("a-1"), DataFile("a-2")], 2, "modulo")
    >>> [[piece.path for piece in part] for part in plan.parts]
    [['a-0', 'a-2'], ['a-1']]

    Raises: UsageError for fewer files than workers, and for a worker that the rule gives none.
    """
    problems = []
    if rule not in RULES:
        problems.append(Problem(f"no rule '{rule}'", f"one of {', '.join(RULES)}"))
    if workers < 1:
        problems.append(Problem(f"{workers} workers, at least 1 is needed"))
    if not pieces:
        problems.append(Problem("there are no files to deal out"))
    twice = sorted(path for path, count in Counter(p.path for p in pieces).items() if count > 1)
    if twice:
        problems.append(Problem(f"'{twice[0]}' is given twice", "each file is read once"))
    if problems:
        raise UsageError.of(problems)
    if len(pieces) < workers:
        if not repeat:
            files = f"{len(pieces)} file{'s' * (len(pieces) != 1)}"
            raise UsageError(
                f"{files} for {workers} workers: some would have nothing to read",
                hint="split them (paddock data split --count), use fewer workers, or --repeat",
            )
        parts = tuple((pieces[worker % len(pieces)],) for worker in range(workers))
        return Assignment(rule, parts, repeated=True)
    plan = Assignment(rule, tuple(tuple(part) for part in RULES[rule](pieces, workers)))
    dealt = [piece for part in plan.parts for piece in part]
    assert sorted(p.path for p in dealt) == sorted(p.path for p in pieces), "disjoint and complete"
    idle = [worker for worker, part in enumerate(plan.parts) if not part]
    if idle:
        raise UsageError(
            f"rule '{rule}' gives no file to worker {', '.join(map(str, idle))}",
            hint="the numbers at the ends of the files' names have gaps; use blocks or size",
        )
    return plan


# ------------------------------------------------------------------------------------------ rules


def _modulo(pieces: Sequence[DataFile], workers: int) -> list[list[DataFile]]:
    """Number at the end of the name, modulo workers; the place in the list where one has none.

    Source: the v0.10 cluster's rule, suffix % TRAINER_COUNT == TRAINER_ID.
    """
    parts: list[list[DataFile]] = [[] for _ in range(workers)]
    found = [SUFFIX.search(piece.path.rpartition("/")[2]) for piece in pieces]
    has_numbers = all(found)
    for index, (piece, number) in enumerate(zip(pieces, found, strict=True)):
        parts[(int(number[1]) if number and has_numbers else index) % workers].append(piece)
    return parts


def _blocks(pieces: Sequence[DataFile], workers: int) -> list[list[DataFile]]:
    """The sorted list in contiguous blocks; the first workers have one more.

    Source: PaddleRec's split_files.
    """
    ordered = sorted(pieces, key=lambda piece: piece.path)
    return [ordered[begin:end] for begin, end in pairwise(even_edges(len(ordered), workers))]


def _size(pieces: Sequence[DataFile], workers: int) -> list[list[DataFile]]:
    """The largest first, each to who has least; at most 4/3 of the best (Graham 1969)."""
    parts: list[list[DataFile]] = [[] for _ in range(workers)]
    held = [(0, 0, worker) for worker in range(workers)]  # bytes, files: a heap
    for piece in sorted(pieces, key=lambda piece: (-piece.size, piece.path)):
        size, count, worker = held[0]
        heapreplace(held, (size + piece.size, count + 1, worker))
        parts[worker].append(piece)
    return [sorted(part, key=lambda piece: piece.path) for part in parts]


RULES: dict[str, Callable[[Sequence[DataFile], int], list[list[DataFile]]]] = {
    "modulo": _modulo,
    "blocks": _blocks,
    "size": _size,
}
