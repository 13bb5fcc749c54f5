"""Paddle's text form of tables, both ways, so that users' old models can be read and given back.

Sparse: a directory of `part-<server, 3 digits>-<shard, 5 digits>.gz` (or without .gz), one line
per key, columns between spaces, as CtrCommonAccessor and SparseAccessor of Paddle 2.6 write them:

    key slot unseen_days delta_score show click embed_w [embed state] [embedx_w ... embedx state]

key: unsigned 64 bits in decimal (ours is the same 64 bits signed). embed_w: the first weight.
embedx_w: the other dim - 1 weights; a key whose score never reached embedx_threshold has none of
them, and its embedx counts as zeros. State, by rule (columns for embed / for embedx of d):
naive 0 / 0, adagrad 1 / 1, std_adagrad 1 / d, adam 4 / 2d + 2, shared_adam 4 / 4.

Dense: files `part-<server>[...]` of one element per line, in the order of the files' names; the
first column is the weight, others are the optimizer's.

Weights, show and click go into the text and come back. The other columns are passed over, and
written as zeros, because no rule of ours has Paddle's exact state.
Source: files written by paddlepaddle 2.6.2.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddock.errors import Problem, UsageError
from paddock.ps.storage.files import DamageError, writing

Floats = NDArray[np.float32]
Keys = NDArray[np.int64]
# slot, unseen_days, delta_score, show, click
_FACTS = 5
_SHOW, _CLICK = 3, 4
_PART = re.compile(r"part-(\d+)(-\d+)?(\.gz)?")
_PROBLEMS_MAX = 5
_LINES_AT_ONCE = 50_000
_LEVEL = 1  # of gzip
_NUMBER = " %.9g"  # gives the same float32 back; Paddle itself writes six digits


class Columns(NamedTuple):
    """How wide a line is. embedx_dim: dim - 1 of our table."""

    embedx_dim: int
    embed_state: int
    embedx_state: int

    @property
    def short(self) -> int:
        """Columns after the key of a line without embedx."""
        return _FACTS + 1 + self.embed_state

    @property
    def full(self) -> int:
        """Columns after the key of a whole line."""
        return self.short + self.embedx_dim + self.embedx_state

    @property
    def weights(self) -> list[int]:
        """The columns that are weights."""
        return [_FACTS, *range(self.short, self.short + self.embedx_dim)]


def columns_of(dim: int, rule: str) -> Columns:
    """The columns of a table of our `dim` under Paddle's rule.

    >>> columns_of(9, "adagrad")
    Columns(embedx_dim=8, embed_state=1, embedx_state=1)

    Raises UsageError for a rule that Paddle does not have.
    """
    rules = _columns_by_rule(dim)
    if rule not in rules:
        raise UsageError(f"Paddle has no sparse rule {rule!r}", hint="one of " + ", ".join(rules))
    return rules[rule]


def _columns_by_rule(dim: int) -> dict[str, Columns]:
    x = dim - 1
    return {
        "naive": Columns(x, 0, 0), "adagrad": Columns(x, 1, 1), "std_adagrad": Columns(x, 1, x),
        "adam": Columns(x, 4, 2 * x + 2), "shared_adam": Columns(x, 4, 4),
    }  # fmt: skip


class PaddleRows(NamedTuple):
    """Rows of a sparse table. keys, shows, clicks: (n,). weights: (n, dim).

    Those but the first of a key that has no embedx are zeros.
    """

    keys: Keys
    weights: Floats
    shows: Floats
    clicks: Floats


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


def write_part(path: Path, rows: PaddleRows, columns: Columns) -> None:
    """Writes one part, packed when the name ends with .gz. Raises PaddockError."""
    values = np.zeros((len(rows.keys), columns.full), np.float32)
    values[:, columns.weights] = rows.weights
    values[:, _SHOW], values[:, _CLICK] = rows.shows, rows.clicks
    _write_lines(path, "%d" + _NUMBER * columns.full, rows.keys.view(np.uint64)[:, None], values)


def read_part(path: Path, columns: Columns) -> PaddleRows:
    """The rows of one part, in the file's order.

    Raises UsageError naming file and line when a line has other columns, DamageError when the
    file ends early or is not gzip.
    """
    keys: list[int] = []
    texts: list[bytes] = []
    problems: list[Problem] = []
    for number, line in enumerate(_read_lines(path), 1):
        key, _, rest = line.partition(b" ")
        count = len(rest.split())
        texts.append(rest + b" 0" * (columns.full - count))
        if key.isdigit() and int(key) < 1 << 64:
            keys.append(int(key))
        else:
            problems.append(Problem(f"{path}, line {number}: {key[:40]!r} is not a key"))
        if count not in (columns.short, columns.full) and len(problems) < _PROBLEMS_MAX:
            text = f"{path}, line {number}: {count} columns after the key instead of "
            text += f"{columns.short} or {columns.full}"
            dim = columns.embedx_dim + 1
            rules = _columns_by_rule(dim).items()
            fit = " and ".join(rule for rule, one in rules if count in (one.short, one.full))
            told = f"of dim {dim}, {fit} have so many" if fit else f"no rule's of dim {dim}"
            hint = f"give the dim and the rule it was saved with: {told}"
            problems.append(Problem(text, hint))
        if len(problems) >= _PROBLEMS_MAX:
            break
    if problems:
        raise UsageError.of(problems)
    values = _parse(texts, path).reshape(-1, columns.full)
    return PaddleRows(
        np.array(keys, np.uint64).view(np.int64),
        np.ascontiguousarray(values[:, columns.weights]),
        values[:, _SHOW].copy(),
        values[:, _CLICK].copy(),
    )


def read_sparse(directory: Path | str, columns: Columns) -> Iterator[PaddleRows]:
    """The rows of a table, one part at a time."""
    for path in list_parts(directory):
        yield read_part(path, columns)


def write_dense(path: Path, weights: Floats) -> None:
    """Writes (n,) weights, one per line."""
    _write_lines(path, "%.9g", weights[:, None])


def read_dense(directory: Path | str) -> Floats:
    """The weights of all parts one after another, (size,) float32."""
    widths: dict[int, Path] = {}
    parts = []
    for path in list_parts(directory):
        lines = _read_lines(path)
        widths.update((len(line.split()), path) for line in lines)
        parts.append(_parse([line.split(None, 1)[0] for line in lines], path))
    if len(widths) > 1:
        told = ", ".join(f"of {width} columns in {path}" for width, path in widths.items())
        raise UsageError(f"there are lines {told}")
    return np.concatenate(parts)


def _write_lines(path: Path, line: str, *columns: NDArray[Any]) -> None:
    """A line for each row of these, side by side."""
    with writing(f"cannot write {path.name}", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        is_packed = path.suffix == ".gz"
        with gzip.open(path, "wb", _LEVEL) if is_packed else path.open("wb") as file:
            for begin in range(0, len(columns[0]), _LINES_AT_ONCE):
                pieces = [one[begin : begin + _LINES_AT_ONCE].tolist() for one in columns]
                rows = (tuple(chain.from_iterable(row)) for row in zip(*pieces, strict=True))
                file.write("".join([line % row + "\n" for row in rows]).encode())


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


def _parse(texts: Sequence[bytes], path: Path) -> Floats:
    """The numbers between white space."""
    try:
        return np.array(b" ".join(texts).split(), np.bytes_).astype(np.float32)
    except ValueError as error:
        raise UsageError(f"{path} holds what is not a number: {error}") from error
