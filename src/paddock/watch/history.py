"""history.jsonl: what happened in a run, a line of JSON each; beside its logs, one file a node.

Every row has "kind" and "at", seconds since 1970 by the clock of its node; "clock" rows say how
that stands to the coordinator's. The first row is "begin" with the version of the schema. Readers
add "node", the host's name. docs/reference/history.md lists the kinds and their fields.

The file is 0600, has no environment value, and stays below a limit: above it, rows that repeat
(REPEATED) are removed until those of a rank are evenly apart, as far as half the limit demands. New
ones are written as before, so the latest are always there. A line that was cut short by a crash is
skipped by readers, and counted.
"""

from __future__ import annotations

import json
import math
import os
from itertools import islice, takewhile

from paddock.core.value import value
from paddock.watch.servers import NUMBERS as SERVER_NUMBERS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any, BinaryIO

    Row = Mapping[str, Any]

VERSION = 1
FILE = "history.jsonl"
REPEATED = ("sample", "progress", "ps")
EARLY = ("allocated", "code_there", "waited")  # written after others, whose time they are before
STANDS = ("stall", "held")
ENDS = ("attempt", "attempt_end", "end")
MOVES = ("stall_over", "held_over", *ENDS)
BYTES_MAX = 16 << 20
BACK_SECONDS = 60.0  # a row is written later than others, whose time it is before, by less
ROW_BYTES_MAX = 1 << 20  # a longer line is no row
LINES_AT_ONCE = 128  # parsed: their rows share the names of fields, 100 MB less in a long history
BLOCK_BYTES = 1 << 16  # that are read at once of a history's end
SEEN_BYTES = 1 << 20  # of a history, from its beginning, where rows of kind "seen" are looked for
APART_SECONDS, APART_MAX = 2.0, 1e6  # between two rows of a rank, once some are removed
# The fields that readers use, and their types. A row in which one is something else is damaged.
_WHOLES = (*SERVER_NUMBERS, "memory_limit", "lag", "behind", "version", "attempt", "rank", "pid",
           "step", "steps", "rss", "tracer")  # fmt: skip
_NUMBERS = ("seconds", "wall", "offset", "cpu", "epoch", "rate", "gpu", "gpu_bytes", "waited",
            "faults")  # fmt: skip
_TEXTS = ("role", "node", "host", "run", "profile", "unit", "name", "text", "why", "how")
FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(_WHOLES, int), **dict.fromkeys(_NUMBERS, (int, float)),
    **dict.fromkeys(_TEXTS, str),
}  # fmt: skip
NUMBER_MAX, TIME_MAX = 2.0**63, 1e11  # the year 5138: more is no time for many a library
NEEDED = {
    "attempt": ("attempt", "ranks"), "clock": ("wall", "offset"), "sample": ("rank", "cpu"),
    "progress": ("rank",), "line": ("rank",), "stall": ("seconds",), "waited": ("seconds",),
    "held": ("rank",), "held_over": ("rank",),
    "ps": ("rank", "is_primary", "tables", *SERVER_NUMBERS),
}  # fmt: skip


class HistoryWriter:
    """Appends rows to a history. Owned by one thread.

    A disk that is full loses rows, and the job goes on; `problem` says why.
    """

    def __init__(self, path: str, bytes_max: int = BYTES_MAX) -> None:
        """Open the file, or make it. Raises OSError."""
        self.path = path
        self.problem = ""
        self._bytes_max = bytes_max
        self._apart = APART_SECONDS
        self._fd = _private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        size = os.fstat(self._fd).st_size
        self._is_torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"

    def add(self, *rows: Row) -> None:
        """Append rows, each whole or not at all for a reader."""
        lines = [json.dumps(row, separators=(",", ":"), default=str) for row in rows]
        text = ("\n" if self._is_torn else "") + "\n".join(lines) + "\n"
        try:
            written = os.write(self._fd, data := text.encode())
        except OSError as error:
            self.problem = error.strerror or str(error)
            return
        self._is_torn = written < len(data)
        found = os.fstat(self._fd)
        if not found.st_nlink:
            self.problem = "it was removed"
        elif found.st_size > self._bytes_max:
            self._thin()

    def _thin(self) -> None:
        """Remove repeated rows that are too close to the one before of their kind and rank."""
        aside = f"{self.path}.thin"
        try:
            while self._copy(aside) > self._bytes_max / 2 and self._apart < APART_MAX:
                self._apart *= 2
            os.replace(aside, self.path)
        except OSError:
            self._bytes_max *= 2  # no room to do it: try much later
            return
        os.close(self._fd)
        self._fd = _private(self.path, os.O_RDWR | os.O_APPEND)
        size = os.fstat(self._fd).st_size
        self._bytes_max = max(self._bytes_max, 2 * size)  # what never repeats is kept

    def _copy(self, aside: str) -> int:
        """Write what is kept into another file; its size. Raises OSError."""
        kept_at: dict[tuple[object, ...], float] = {}
        latest: dict[tuple[object, ...], bytes] = {}  # not kept so far; readers sort by time
        with open(aside, "wb", opener=_private) as file, open(self.path, "rb") as whole:
            for line, row in _lines(whole):
                if row is not None and row["kind"] in REPEATED:
                    key = (row["kind"], row.get("role"), row.get("rank"))
                    if abs(row["at"] - kept_at.get(key, -math.inf)) < self._apart:
                        latest[key] = line
                        continue
                    kept_at[key] = row["at"]
                    latest.pop(key, None)
                elif row is not None and row["kind"] == "attempt":
                    file.writelines(latest.values())
                    latest.clear()
                    kept_at.clear()  # the first and last of each attempt: the bill needs them
                file.write(line)
            file.writelines(latest.values())
            return file.tell()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def at_once(path: str, flags: int) -> int:
    """Open a file that may be a FIFO, which would wait for its writer; for open()."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


@value
class HistoryRows:
    """The rows of a run, in the order of time. skipped: damaged lines. newest: schema's version."""

    rows: tuple[Row, ...]
    skipped: int = 0
    newest: int = VERSION

    def of(self, *kinds: str) -> Iterator[Row]:
        """The rows of these kinds."""
        return (row for row in self.rows if row["kind"] in kinds)


def read_history(paths: Iterable[str | os.PathLike[str]]) -> HistoryRows:
    """Read the histories of the nodes of a run. A file that is not there has no rows."""
    return HistoryReader(paths).read()


class HistoryReader:
    """Reads histories as they grow: each time only what is new. Owned by one thread.

    keep: tells of a row whether it is wanted; without it, all are.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        keep: Callable[[Row], bool] = lambda _: True,
    ) -> None:
        self._paths = tuple(os.fspath(path) for path in paths)
        self._keep = keep
        self._files: list[_NodeHistory] = []

    def is_of(self, paths: Iterable[str | os.PathLike[str]]) -> bool:
        """Return True if it reads these files."""
        return self._paths == tuple(os.fspath(path) for path in paths)

    def read(self) -> HistoryRows:
        """The rows until now; once a file was thinned or replaced, all are read anew."""
        if not self._files or not all(each.is_same() for each in self._files):
            self._files = [_NodeHistory(path) for path in self._paths]
        for each in self._files:
            try:
                each.read({other.node for other in self._files if other is not each}, self._keep)
            except OSError:
                continue
        rows = merged([each.rows for each in self._files])
        newest = max((each.newest for each in self._files), default=VERSION)
        return HistoryRows(tuple(rows), sum(each.skipped for each in self._files), newest)


class _NodeHistory:
    """The rows of one file until now. skipped: with the last one, while it is half written."""

    def __init__(self, path: str) -> None:
        self.rows: list[Row] = []
        self.node = ""
        self.newest, self.skipped = VERSION, 0
        self._path = path
        self._inode = self._next_byte = self._torn = 0
        self._shift, self._latest = 0.0, -math.inf  # added to times; the latest of them

    def is_same(self) -> bool:
        """Return True unless the file was thinned, replaced or removed since it was read."""
        try:
            found = os.stat(self._path)
        except OSError:
            return not self._next_byte
        return found.st_size >= self._next_byte and self._inode in (0, found.st_ino)

    def read(self, others: Collection[str], keep: Callable[[Row], bool]) -> None:
        """Read what is new. others: names of the other nodes. Raises OSError."""
        self.skipped, self._torn = self.skipped - self._torn, 0
        with open(self._path, "rb", opener=at_once) as file:
            self._inode = os.fstat(file.fileno()).st_ino
            file.seek(self._next_byte)
            for line, row in _lines(file):
                is_damaged = row is None and bool(line.strip())
                self.skipped += is_damaged
                if row is None and not line.endswith(b"\n") and len(line) < ROW_BYTES_MAX:
                    self._torn = int(is_damaged)
                    return
                self._next_byte += len(line)
                if row is not None:
                    self._add(row, others, keep)

    def _add(
        self, row: dict[str, Any], others: Collection[str], keep: Callable[[Row], bool]
    ) -> None:
        if row["kind"] == "begin":
            host = str(row.get("host", ""))
            self.node = f"{host}/{row.get('run')}" if host in others else host
            self.newest = max(self.newest, int(row.get("version", VERSION)))
        is_early = row["kind"] in EARLY
        if row["at"] + self._shift < self._latest - BACK_SECONDS and not is_early:
            self._shift = self._latest - row["at"]  # its clock was set back
        self._latest = max(self._latest, row["at"] + self._shift)
        if not keep(row):
            return
        row.setdefault("node", self.node)
        for name in {"at", "wall"} & row.keys() if self._shift else ():
            row[name] = round(row[name] + self._shift, 3)
        self.rows.append(row)


def merged(nodes: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of several nodes in the order of time, by the coordinator's clock.

    >>> first = [{"kind": "clock", "at": 100.0, "wall": 90.0, "offset": 0.0}]
    >>> second = [{"kind": "clock", "at": 107.0, "wall": 77.0, "offset": -20.0}]
    >>> [row["at"] for row in merged([first, second])]  # its wall clock is 7 s ahead
    [100.0, 100.0]
    """
    clocks = [next((r for r in reversed(rows) if r["kind"] == "clock"), None) for rows in nodes]
    own = next((c for c in clocks if c is not None and not c["offset"]), None)
    found: list[Row] = []
    for rows, clock in zip(nodes, clocks, strict=True):
        skew = 0.0
        if own is not None and clock is not None and clock["offset"]:
            skew = own["wall"] + clock["offset"] - clock["wall"]
        found += rows if not skew else [{**row, "at": round(row["at"] + skew, 3)} for row in rows]
    return sorted(found, key=lambda row: float(row["at"]))


def first_row(path: str | os.PathLike[str]) -> Row:
    """The first row of a history; empty where there is none."""
    try:
        with open(path, "rb", opener=at_once) as file:
            return next(_lines(file), (b"", None))[1] or {}
    except OSError:
        return {}


def last_rows(
    path: str | os.PathLike[str], kinds: Iterable[str], bytes_max: int = 2 * BYTES_MAX
) -> Iterator[Row]:
    """The rows of these kinds, the latest first, as far back as they are asked for.

    Lines of other kinds are not parsed. bytes_max: as far from the end, at most.
    """
    begins = marks(*kinds)
    try:
        with open(path, "rb", opener=at_once) as file:
            at = size = file.seek(0, os.SEEK_END)
            rest = b""
            while at > max(0, size - bytes_max):
                begin = max(0, at - max(BLOCK_BYTES, size - at))  # twice as many each time
                file.seek(begin)
                lines = (file.read(at - begin) + rest).split(b"\n")
                at, rest = begin, lines.pop(0) if begin else b""
                found = (row_of(line) for line in reversed(lines) if line.startswith(begins))
                yield from (row for row in found if row is not None)
    except OSError:
        return


def marks(*kinds: str) -> tuple[bytes, ...]:
    """The beginnings of the lines of these kinds, as HistoryWriter writes them."""
    return tuple(f'{{"kind":"{kind}",'.encode() for kind in kinds)


def latest_rows(path: str | os.PathLike[str]) -> list[Row]:
    """The stall and the held ranks that go on, and what was seen in the logs."""
    rows = takewhile(lambda row: row["kind"] not in ENDS, last_rows(path, (*STANDS, *MOVES)))
    return [*standing([*rows][::-1]), *seen_rows(path)]


def standing(rows: Iterable[Row]) -> list[Row]:
    """The stalls and held ranks that are not over, of rows in the order of time.

    >>> [row["kind"] for row in standing([{"kind": "stall"}, {"kind": "held", "rank": 1},
    ...                                   {"kind": "held_over", "rank": 1}])]
    ['stall']
    """
    found: dict[tuple[object, object], Row] = {}  # by node, and by rank where it is held
    for row in rows:
        kind, node = row["kind"], row.get("node")
        key = (node, row.get("rank") if "held" in kind else None)
        if kind in STANDS:
            found[key] = row
        elif kind in ("stall_over", "held_over"):
            found.pop(key, None)
        elif kind in ENDS:
            found = {key: row for key, row in found.items() if key[0] != node}
    return list(found.values())


def seen_rows(path: str | os.PathLike[str]) -> list[Row]:
    """The things that were seen in the logs early in a run: names and texts."""
    begin = marks("seen")
    try:
        with open(path, "rb", opener=at_once) as file:
            lines = file.read(SEEN_BYTES).split(b"\n")
    except OSError:
        return []
    found = (row_of(line) for line in lines if line.startswith(begin))
    return [row for row in found if row is not None]


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """The lines of a history and their rows; None for one that is damaged, or empty.

    Raises OSError.
    """
    while lines := list(islice(iter(lambda: file.readline(ROW_BYTES_MAX), b""), LINES_AT_ONCE)):
        rows = _parsed(b"[%s]" % b",".join(lines))
        if rows is None or len(rows) != len(lines):
            rows = [_parsed(line) for line in lines]
        yield from (
            (line, row if is_sound(row) else None) for line, row in zip(lines, rows, strict=True)
        )


def row_of(line: bytes) -> Row | None:
    """The row in a line of a history; None in a damaged one."""
    row: Row = _parsed(line)
    return row if is_sound(row) else None


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_sound(row: Any) -> bool:
    """Return True if a row has the fields of its kind."""
    try:
        for name, found in row.items():  # in one loop: a long history has 150,000 rows
            kind = FIELDS.get(name)
            if kind is None or (kind is str and isinstance(found, str)):
                continue
            if not (isinstance(found, kind) and -NUMBER_MAX < found < NUMBER_MAX):
                return False
        triples = [each[:3] for each in row["ranks"]] if row["kind"] == "attempt" else []
        triples += row["tables"] if row["kind"] == "ps" else []
        ranks, texts, lists = [], [], []
        if row["kind"] not in REPEATED:
            groups, stacks = row.get("groups", []), row.get("stacks", [])
            members = [row.get("suspects", []), row.get("differing", []), *(m for m, _ in groups)]
            lists = [groups, stacks, *members, *stacks]
            ranks = [rank for of in members for rank in of]
            texts = [place for _, place in groups] + [f for of in stacks for f in of]
        return (
            isinstance(row["kind"], str)
            and abs(row["at"]) < TIME_MAX
            and all(name in row for name in NEEDED.get(row["kind"], ()))
            and all(_is(name, str) and _is(a, int) and _is(b, int) for name, a, b in triples)
            and all(isinstance(each, list) for each in lists)
            and all(_is(rank, int) for rank in ranks)
            and all(_is(text, str) for text in texts)
            and all(isinstance(v, float) or _is(v, int) for v in (row.get("values") or {}).values())
        )
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError):
        return False


def _is(found: Any, kind: Any) -> bool:
    return isinstance(found, kind) and (kind is str or -NUMBER_MAX < found < NUMBER_MAX)
