"""Reads data as training would, and tells what is in it and what is wrong with it.

Everything is read once; memory does not grow with the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.data.batch import Bag, Batch
from paddock.data.chunks import Chunk, DataFile
from paddock.data.files import is_url
from paddock.data.formats.format import Coverage, Format, Parsed, parse_chunk
from paddock.data.generate.ceiling import mixed
from paddock.data.manifest import file_hash, read_manifest

EXACT_MAX = 1 << 17  # different ids that are counted one by one
KEPT = 1 << 15  # of them, the most frequent, when there are more
REGISTER_BITS = 12

Ids = NDArray[np.int64]


class IdCounts:
    """Counts of ids: exact to EXACT_MAX different ones; then only the frequent are exact enough.

    The number of different ids comes from HyperLogLog then (Flajolet et al. 2007), to about 2 %.
    """

    def __init__(self) -> None:
        self.total = 0
        self.low = self.high = 0
        self.is_exact = True
        self._ids: Ids = np.empty(0, np.int64)
        self._counts: Ids = np.empty(0, np.int64)
        self._registers = np.zeros(1 << REGISTER_BITS, np.uint8)

    def add(self, values: Ids) -> None:
        """Count ids, (n,) int64."""
        if not len(values):
            return
        ids, counts = np.unique(values, return_counts=True)
        low, high = int(ids[0]), int(ids[-1])
        self.low, self.high = (
            (min(self.low, low), max(self.high, high)) if self.total else (low, high)
        )
        self.total += len(values)
        self._note(ids)
        both = np.concatenate([self._ids, ids])
        self._ids, places = np.unique(both, return_inverse=True)
        weights = np.concatenate([self._counts, counts])
        self._counts = np.bincount(places, weights).astype(np.int64)
        if len(self._ids) > EXACT_MAX:
            self.is_exact = False
            kept = np.sort(np.argpartition(self._counts, -KEPT)[-KEPT:])
            self._ids, self._counts = self._ids[kept], self._counts[kept]

    def _note(self, ids: Ids) -> None:
        hashes = mixed(ids.view(np.uint64))
        places = (hashes >> np.uint64(64 - REGISTER_BITS)).astype(np.int64)
        rest = hashes & np.uint64((1 << (64 - REGISTER_BITS)) - 1)
        # Zeros before the first one of the rest's 52 bits, and 1: exact in a float64.
        length = np.frexp(rest.astype(np.float64))[1]
        rank = (64 - REGISTER_BITS + 1 - length).astype(np.uint8)
        np.maximum.at(self._registers, places, rank)

    def distinct(self) -> int:
        """How many different ids there are, or about how many."""
        if self.is_exact:
            return len(self._ids)
        size = len(self._registers)
        scale = 0.7213 / (1 + 1.079 / size)
        return int(scale * size * size / np.sum(2.0 ** -self._registers.astype(np.float64)))

    def top(self, count: int) -> list[tuple[int, float]]:
        """The most frequent ids and their shares of all."""
        order = np.argsort(-self._counts, kind="stable")[:count]
        return [(int(self._ids[i]), float(self._counts[i]) / self.total) for i in order]


BAD_SHOWN = 20
UNEVEN_RATIO = 1.5
DUPLICATE_LINES = 1_000_000  # looked at for duplicates, all files together

Progress = Callable[[int, int], None]


@dataclass
class FileFacts:
    """The counts of one file."""

    path: str
    bytes: int
    lines: int = 0
    examples: int = 0


@dataclass
class Numbers:
    """Sums over a dense slot."""

    width: int
    low: float = np.inf
    high: float = -np.inf
    total: float = 0.0
    count: int = 0
    not_finite: int = 0


@dataclass
class DataReport:
    """The result of a check. wrong: ends with exit code 1. warnings: worth a look."""

    files: list[FileFacts] = field(default_factory=list)
    samples: list[tuple[str, str]] = field(default_factory=list)  # file, example as parsed
    ids: dict[str, IdCounts] = field(default_factory=dict)
    dense: dict[str, Numbers] = field(default_factory=dict)
    labels: Counter[float] = field(default_factory=Counter)
    coverage: Coverage = field(default_factory=Coverage)
    bad: list[tuple[str, int, str]] = field(default_factory=list)  # file, line from 1, why
    bad_count: int = 0
    wrong: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check(
    files: Sequence[DataFile], form: Format, samples: int, padding: int, progress: Progress
) -> DataReport:
    """Read all files as `form` and judge them. progress: is told (bytes read, of how many)."""
    report = DataReport()
    twins = _Duplicates(files)
    total, before = sum(file.size for file in files), 0
    for number, file in enumerate(files):
        facts = FileFacts(file.path, file.size)
        report.files.append(facts)
        read = 0
        for block, parsed in parse_chunk(form, Chunk(file.path)):
            _count(report, facts, parsed, samples, padding)
            twins.add(number, block or b"")
            read += len(block or b"")
            if read < file.size:  # gz holds more than its bytes say.
                progress(before + read, total)
        before += file.size
        progress(before, total)
    _judge(report)
    report.warnings += twins.warnings()
    report.wrong += twins.wrong()
    for directory in dict.fromkeys(Path(f.path).parent for f in files if not is_url(f.path)):
        _verify_manifest(report, directory)
    return report


def _count(
    report: DataReport, facts: FileFacts, parsed: Parsed, samples: int, padding: int
) -> None:
    batch = parsed.batch
    for bad in parsed.bad:
        if len(report.bad) < BAD_SHOWN:
            report.bad.append((facts.path, facts.lines + bad.line + 1, bad.reason))
    report.bad_count += parsed.bad_count
    wanted = samples - len(report.samples)
    report.samples += [(facts.path, text) for text in text_of(batch, wanted)] if wanted > 0 else []
    report.coverage.add(parsed)
    for slot, column in batch.ids.items():
        values = column.values if isinstance(column, Bag) else column.ravel()
        if parsed.seen.get(slot, batch.size) < batch.size:
            values = values[values != padding]
        report.ids.setdefault(slot, IdCounts()).add(values)
    for slot, numbers in batch.dense.items():
        sums = report.dense.setdefault(slot, Numbers(numbers.shape[1]))
        finite = numbers[np.isfinite(numbers)]
        sums.not_finite += numbers.size - finite.size
        if finite.size:
            sums.low = min(sums.low, float(finite.min()))
            sums.high = max(sums.high, float(finite.max()))
            sums.total += float(finite.sum(dtype=np.float64))
            sums.count += finite.size
    labels, counts = np.unique(batch.label, return_counts=True)
    for label, count in zip(labels.tolist(), counts.tolist(), strict=True):
        report.labels[label] += count
    facts.lines += parsed.lines
    facts.examples += batch.size


def text_of(batch: Batch, count: int = 10) -> list[str]:
    """The first examples, a line for each (`reader_debug_mode`, `dataset_debug`).

    >>> text_of(Batch(1, {"7": np.array([4])}, {"age": np.array([[0.5, 2]])}, np.array([1.0])))
    ['label 1, 7 4, age [0.5 2]']
    """
    rows: list[str] = []
    columns: dict[str, Any] = {**batch.ids, **batch.dense, **batch.other}
    for i in range(min(count, batch.size)):
        fields = [f"label {batch.label[i]:g}"] if len(batch.label) else []
        fields += [f"{slot} {_value(column, i)}" for slot, column in columns.items()]
        rows.append(", ".join(fields))
    return rows


def _value(column: Any, i: int) -> str:
    if isinstance(column, Bag):
        start = int(column.lengths[:i].sum())
        row: Any = column.values[start : start + int(column.lengths[i])]
    else:
        row = column[i]
    if not isinstance(row, np.ndarray):
        return str(row)
    texts = (f"{v:.6g}" if isinstance(v, float) else str(v) for v in row.tolist())
    return f"[{' '.join(texts)}]"


# ------------------------------------------------------------------------------------------ judge


def _judge(report: DataReport) -> None:
    wrong, warnings = report.wrong, report.warnings
    if report.bad_count:
        path, line, reason = report.bad[0]
        wrong.append(f"{report.bad_count} bad lines, the first is {path}:{line}: {reason}")
    others = {label: n for label, n in report.labels.items() if label not in (0.0, 1.0)}
    if others:
        shown = ", ".join(f"{label:g} ({n})" for label, n in sorted(others.items())[:5])
        wrong.append(f"{sum(others.values())} labels are neither 0 nor 1: {shown}")
    elif len(report.labels) == 1:
        warnings.append(f"all labels are {next(iter(report.labels)):g}")
    for name, facts in report.dense.items():
        if facts.not_finite:
            wrong.append(f"dense slot '{name}' has {facts.not_finite} values that are not finite")
    for text in report.coverage.warnings():
        # A declared slot that never occurs trains on padding; one more in the data is only unread.
        (wrong if " is declared and in none of " in text else warnings).append(text)
    for file in report.files:
        if not file.examples:
            wrong.append(f"{file.path} has no example")
    counts = [file.examples for file in report.files]
    mean = sum(counts) / max(len(counts), 1)
    if mean and max(counts) > UNEVEN_RATIO * mean:
        largest = report.files[counts.index(max(counts))].path
        ratio = max(counts) / mean
        warnings.append(f"files are uneven: {largest} has {ratio:.1f} times the mean of examples")


class _Duplicates:
    """Lines that stand in several files, and files that are the same."""

    def __init__(self, files: Sequence[DataFile]) -> None:
        self._files = files
        self._left = [DUPLICATE_LINES // len(files)] * len(files)
        self._limit = self._left[0]
        self._first: dict[int, int] = {}  # hash of a line -> the file it was first in
        self._shared = self._looked = 0

    def add(self, number: int, block: bytes) -> None:
        if self._left[number] <= 0:
            return
        for line in block.split(b"\n")[: self._left[number]]:
            if line:
                self._shared += self._first.setdefault(hash(line), number) != number
                self._looked += 1
                self._left[number] -= 1

    def warnings(self) -> list[str]:
        if not self._shared:
            return []
        is_cut = any(left <= 0 for left in self._left)
        where = f" (looked at the first {self._limit} lines of each)" if is_cut else ""
        share = self._shared / self._looked
        return [f"{self._shared} lines ({share:.1%}) stand in another file, too{where}"]

    def wrong(self) -> list[str]:
        """Files of the same bytes."""
        sizes = Counter(file.size for file in self._files)
        seen: dict[str, str] = {}
        found = []
        for file in self._files:
            if file.size and sizes[file.size] > 1 and not is_url(file.path):
                digest = f"{file.size} {file_hash(Path(file.path))}"
                first = seen.setdefault(digest, file.path)
                if first != file.path:
                    found.append(f"{file.path} has the same bytes as {first}")
        return found


def _verify_manifest(report: DataReport, directory: Path) -> None:
    manifest = read_manifest(directory)
    if manifest is None:
        return
    given = {Path(file.path).name for file in report.files if Path(file.path).parent == directory}
    for shard in manifest.shards:
        path = directory / shard.name
        if not path.exists():
            report.wrong.append(f"{path} is in the manifest and missing")
        elif path.stat().st_size != shard.bytes:
            size = path.stat().st_size
            report.wrong.append(f"{path} has {size} bytes, the manifest says {shard.bytes}")
        elif shard.name in given and file_hash(path) != shard.xxh3:
            report.wrong.append(f"{path} has other content than the manifest says (xxh3)")
    known = {shard.name for shard in manifest.shards}
    report.warnings += [
        f"{directory / name} is not in the manifest" for name in sorted(given - known)
    ]
