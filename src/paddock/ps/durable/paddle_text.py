"""Paddle's text form of tables, both ways, so that users' old models can be read and given back.

Sparse: a directory of `part-<server, 3 digits>-<shard, 5 digits>.gz` (or without .gz), one line
per key, columns between spaces, as CtrCommonAccessor and SparseAccessor of Paddle 2.6 write them:

    key slot unseen_days delta_score show click embed_w [embed state] [embedx_w ... embedx state]

key: unsigned 64 bits in decimal (ours is the same 64 bits signed). embed_w: the first weight.
embedx_w: the other dim - 1 weights; a key whose score never reached embedx_threshold has none of
them, and its embedx counts as zeros. State, by rule (columns for embed / for embedx of d):
naive 0 / 0, adagrad 1 / 1, std_adagrad 1 / d, adam 4 / 2d + 2, shared_adam 4 / 4.

Dense: files `part-<server>[...]` of one element per line, in the order of the files' names; the
first column is the weight, others are the optimizer's and are kept as they are.

Read: every column. Of our tables weights, show and click go into the text and come back; state
columns are written as zeros (or as given), because no rule of ours has Paddle's exact state.
Source: files written by paddlepaddle 2.6.2.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddock.errors import Problem, UsageError
from paddock.ps.durable.files import DamageError, write_error

Floats = NDArray[np.float32]
Keys = NDArray[np.int64]
# slot, unseen_days, delta_score, show, click
FACTS = ("slot", "unseen_days", "delta_score", "show", "click")
_PART = re.compile(r"part-(\d+)(-\d+)?(\.gz)?")
_PROBLEMS_MAX = 5
_LINES_AT_ONCE = 50_000


class Columns(NamedTuple):
    """How wide a line is. embedx_dim: dim - 1 of our table."""

    embedx_dim: int
    embed_state: int
    embedx_state: int

    @property
    def short(self) -> int:
        """Columns after the key of a line without embedx."""
        return len(FACTS) + 1 + self.embed_state

    @property
    def full(self) -> int:
        """Columns after the key of a whole line."""
        return self.short + self.embedx_dim + self.embedx_state


def columns_of(dim: int, rule: str) -> Columns:
    """The columns of a table of our `dim` under Paddle's rule.

    >>> columns_of(9, "adagrad")
    Columns(embedx_dim=8, embed_state=1, embedx_state=1)

    Raises UsageError for a rule that Paddle does not have.
    """
    x = dim - 1
    widths = {
        "naive": (0, 0), "adagrad": (1, 1), "std_adagrad": (1, x), "adam": (4, 2 * x + 2),
        "shared_adam": (4, 4),
    }  # fmt: skip
    if rule not in widths:
        raise UsageError(f"Paddle has no sparse rule {rule!r}", hint="one of " + ", ".join(widths))
    return Columns(x, *widths[rule])


@dataclass(frozen=True, slots=True)
class PaddleRows:
    """Rows of a sparse table. keys (n,), facts (n, 5) as FACTS, weights (n, dim).

    embed_state, embedx_state: (n, ...) as the columns say. has_embedx: (n,) whether the line had
    the other weights; where not, they are zeros.
    """

    keys: Keys
    facts: Floats
    weights: Floats
    embed_state: Floats
    embedx_state: Floats
    has_embedx: NDArray[np.bool_]


def make_rows(
    keys: Keys,
    weights: Floats,
    columns: Columns,
    *,
    shows: Floats | None = None,
    clicks: Floats | None = None,
) -> PaddleRows:
    """Rows of one of our tables; state and the facts we have not are zeros."""
    count = len(keys)
    facts = np.zeros((count, len(FACTS)), np.float32)
    if shows is not None:
        facts[:, 3] = shows
    if clicks is not None:
        facts[:, 4] = clicks
    return PaddleRows(
        keys,
        facts,
        weights,
        np.zeros((count, columns.embed_state), np.float32),
        np.zeros((count, columns.embedx_state), np.float32),
        np.ones(count, np.bool_),
    )


def part_name(server: int, shard: int, *, compressed: bool = True) -> str:
    """The name of one file of a sparse table.

    >>> part_name(0, 12)
    'part-000-00012.gz'
    """
    return f"part-{server:03d}-{shard:05d}" + (".gz" if compressed else "")


def list_parts(directory: Path | str) -> list[Path]:
    """The parts in a directory by server and shard. Raises UsageError when there is none."""
    directory = Path(directory)
    found = sorted(p for p in directory.glob("part-*") if _PART.fullmatch(p.name))
    if not found:
        raise UsageError(
            f"there is no part-* in {directory}",
            hint="give the directory of one table, as <saved>/<number of the table>",
        )
    return found


# --------------------------------------------------------------------------------------- sparse


def write_part(path: Path, rows: PaddleRows, *, level: int = 1) -> None:
    """Writes one part. level: of gzip, when the name ends with .gz. Raises PaddockError."""
    short = np.concatenate([rows.facts, rows.weights[:, :1], rows.embed_state], axis=1)
    full = np.concatenate([short, rows.weights[:, 1:], rows.embedx_state], axis=1)
    # Nine digits give the same float32 back; Paddle itself writes six.
    short_line = "%d" + " %.9g" * short.shape[1] + "\n"
    full_line = "%d" + " %.9g" * full.shape[1] + "\n"
    keys = rows.keys.view(np.uint64)
    try:
        with _open_write(path, level) as file:
            for begin in range(0, len(keys), _LINES_AT_ONCE):
                piece = slice(begin, begin + _LINES_AT_ONCE)
                lines = [
                    full_line % (key, *values)
                    if has_embedx
                    else short_line % (key, *values[: short.shape[1]])
                    for key, values, has_embedx in zip(
                        keys[piece].tolist(),
                        full[piece].tolist(),
                        rows.has_embedx[piece].tolist(),
                        strict=True,
                    )
                ]
                file.write("".join(lines).encode())
    except OSError as error:
        raise write_error(f"cannot write {path.name}", path.parent, error) from error


def read_part(path: Path, columns: Columns) -> PaddleRows:
    """The rows of one part, in the file's order.

    Raises UsageError naming file and line when a line has other columns, DamageError when the
    file ends early or is not gzip.
    """
    lines = _read_lines(path)
    count = len(lines)
    keys = np.empty(count, np.uint64)
    counts = np.empty(count, np.int64)
    rests: list[bytes] = []
    problems: list[Problem] = []
    for index, line in enumerate(lines):
        key, _, rest = line.partition(b" ")
        fields = rest.split()
        counts[index] = len(fields)
        rests.append(rest)
        try:
            keys[index] = int(key)
        except (ValueError, OverflowError):
            problems.append(Problem(f"{path}, line {index + 1}: {key[:40]!r} is not a key"))
        if len(fields) not in (columns.short, columns.full) and len(problems) < _PROBLEMS_MAX:
            problems.append(
                Problem(
                    f"{path}, line {index + 1}: {len(fields)} columns after the key instead of "
                    f"{columns.short} or {columns.full}",
                    "give the dim and the rule the table was saved with",
                )
            )
        if len(problems) >= _PROBLEMS_MAX:
            break
    if problems:
        raise UsageError.of(problems)
    is_full = counts == columns.full
    values = np.zeros((count, columns.full), np.float32)
    mask = np.arange(columns.full)[None, :] < counts[:, None]
    values[mask] = _parse(rests, int(counts.sum()), path)
    embedx = columns.short
    state = embedx + columns.embedx_dim
    weight = len(FACTS)
    return PaddleRows(
        keys.view(np.int64),
        values[:, :weight].copy(),
        np.concatenate([values[:, weight : weight + 1], values[:, embedx:state]], axis=1),
        values[:, weight + 1 : embedx].copy(),
        values[:, state:].copy(),
        is_full,
    )


def read_sparse(directory: Path | str, columns: Columns) -> Iterator[PaddleRows]:
    """The rows of a table, one part at a time."""
    for path in list_parts(directory):
        yield read_part(path, columns)


# ---------------------------------------------------------------------------------------- dense


def write_dense(path: Path, values: Floats) -> None:
    """Writes (n,) weights, or (n, columns) with the weight first, one element per line."""
    table = values.reshape(len(values), -1)
    line = " ".join(["%.9g"] * table.shape[1]) + "\n"
    try:
        with _open_write(path, 1) as file:
            for begin in range(0, len(table), _LINES_AT_ONCE):
                piece = table[begin : begin + _LINES_AT_ONCE].tolist()
                file.write("".join([line % tuple(row) for row in piece]).encode())
    except OSError as error:
        raise write_error(f"cannot write {path.name}", path.parent, error) from error


def read_dense(directory: Path | str) -> Floats:
    """(elements, columns) of all parts one after another; column 0 is the weight."""
    tables = []
    for path in list_parts(directory):
        lines = _read_lines(path)
        widths = {len(line.split()) for line in lines}
        if len(widths) > 1:
            raise UsageError(f"{path} has lines of {min(widths)} to {max(widths)} columns")
        width = next(iter(widths), 0)
        tables.append(_parse(lines, len(lines) * width, path).reshape(len(lines), width))
    widths = {table.shape[1] for table in tables if len(table)}
    if len(widths) > 1:
        raise UsageError(f"the parts in {directory} have {min(widths)} to {max(widths)} columns")
    full = [table for table in tables if len(table)]
    return np.concatenate(full) if full else np.zeros((0, 1), np.float32)


# --------------------------------------------------------------------------------------- shared


def _read_lines(path: Path) -> list[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data: bytes = file.read()
    except FileNotFoundError as error:
        raise UsageError(f"{path} is missing") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamageError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    return [line for line in data.splitlines() if line.strip()]


def _parse(texts: Iterable[bytes], count: int, path: Path) -> Floats:
    """`count` numbers between white space."""
    try:
        values = np.array(b" ".join(texts).split(), np.bytes_).astype(np.float32)
    except ValueError as error:
        raise UsageError(f"{path} holds what is not a number: {error}") from error
    assert len(values) == count
    return values


def _open_write(path: Path, level: int) -> gzip.GzipFile | BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        return gzip.GzipFile(path, "wb", compresslevel=level)
    return path.open("wb")
