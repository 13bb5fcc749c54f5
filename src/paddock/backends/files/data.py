"""Numbered files of a package, dealt out: file i goes to node i modulo the number of nodes. Pure.

The number stands at the end of the name, or before what tells the format, as `split` and others
write it: train.txt-00000, part_3.csv.gz, data-00001-of-00004.parquet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from paddock.backends.files.ignore import translate
from paddock.backends.node.manifest import PackageManifest, listed, raw, shown
from paddock.backends.node.store import size_text
from paddock.errors import Problem, UsageError, refuse

NUMBER = re.compile(r"(?:^|[-_.])([0-9]{1,18})(?:-of-[0-9]+)?(?:\.[A-Za-z]\w*)*\Z")
UNEVEN = 1.1  # the largest share over the smallest, from which on it is told


def deal(paths: Sequence[str], nnodes: int) -> list[list[str]]:
    """Deal numbered paths to the nodes.

    Raises UsageError unless each node gets some, and each path has a number.

    >>> deal(["d/t.txt-00000", "d/t.txt-00001", "d/t.txt-00002"], 2)
    [['d/t.txt-00000', 'd/t.txt-00002'], ['d/t.txt-00001']]
    """
    problems = []
    numbers: dict[int, list[str]] = {}
    for path in paths:
        number = number_of(path)
        if number is None:
            hint = "name files like train.txt-00000, or choose another --data"
            problems.append(Problem(f"--data: {shown(path)} has no number at its end", hint))
        else:
            numbers.setdefault(number, []).append(path)
    for number, same in sorted(numbers.items()):
        if len(same) > 1:
            names = listed([shown(path) for path in sorted(same)])
            hint = "let --data mean the files of one set only"
            problems.append(
                Problem(f"--data: number {number} is there {len(same)} times: {names}", hint)
            )
    refuse(problems)
    dealt: list[list[str]] = [[] for _ in range(nnodes)]
    for number, same in sorted(numbers.items()):
        dealt[number % nnodes] += same
    without = [str(node) for node, share in enumerate(dealt) if not share]
    if without:
        raise UsageError(
            f"--data: {len(paths)} files for {nnodes} nodes, by number modulo {nnodes}: node"
            f" {', '.join(without)} would get none",
            hint="split the data into as many files as there are nodes, numbered from 0",
        )
    return dealt


def number_of(path: str) -> int | None:
    """Return the number in a file's name; None if there is none.

    >>> number_of("d2/train.txt-00012"), number_of("a-1-of-4.csv.gz"), number_of("data.h5")
    (12, 1, None)
    """
    found = NUMBER.search(path.rpartition("/")[2])
    return int(found[1]) if found else None


def shares(
    manifest: PackageManifest, pattern: str, nnodes: int, say: Callable[[str], None]
) -> list[PackageManifest]:
    """Return each node's share of a package: not the files dealt to others. Raises UsageError."""
    fits = translate(raw(pattern.removeprefix("./")))
    sizes = {e.path: e.size for e in manifest.files if fits.fullmatch(raw(e.path))}
    if not sizes:
        raise UsageError(
            f"--data '{pattern}' means no file of the package",
            hint="write it as seen from the package, in quotes: --data 'data/train.txt-*'",
        )
    dealt = deal(sorted(sizes), nnodes)
    totals = [sum(sizes[path] for path in share) for share in dealt]
    sentence = unevenness(totals)
    if sentence:
        say(sentence)
    return [manifest.without(sizes.keys() - set(share)) for share in dealt]


def unevenness(totals: Sequence[int]) -> str:
    """Return a warning when one node has much more data (bytes) than another; "" when not."""
    most, least = max(totals), min(totals)
    if most <= least * UNEVEN:
        return ""
    return (
        f"warning: --data is uneven: node {totals.index(most)} gets {size_text(most)}, node"
        f" {totals.index(least)} {size_text(least)}; nodes that train in step wait for the largest"
    )
