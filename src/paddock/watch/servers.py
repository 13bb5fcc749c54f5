"""The row of a parameter server's counters: sent by the server, written by its launcher. Pure.

Its numbers are NUMBERS, those of COUNTED since its start, and MAYBE; is_primary; tables: lists of
name, rows and bytes, the largest first.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

COUNTED = ("pushes", "pulls")
NUMBERS = ("rows", "bytes", "connections", "lsn", *COUNTED)
MAYBE = ("memory_limit", "lag", "behind")


def server_row(status: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a server. status: as `paddock ps status --json` prints it.

    lag: steps between its first and its last trainer. behind: records that its replica lacks.

    >>> pair = {"position": 9, "replica": 7}
    >>> members = [{"step": 4, "arrived": 5}, {"step": 4, "arrived": None}]
    >>> facts = {"role": "primary", "tables": [], "pair": pair, "trainers": {"members": members}}
    >>> server_row({**dict.fromkeys(NUMBERS, 0), **facts})["lag"]
    1
    """
    row = {name: status[name] for name in NUMBERS}
    tables = [[one["name"], one.get("rows", 0), one["bytes"]] for one in status["tables"]]
    row |= {"is_primary": status["role"] == "primary"}
    row["tables"] = sorted(tables, key=lambda one: -one[2])
    members = (status["trainers"] or {}).get("members", ())
    steps = [max(one["step"], one["arrived"] or 0) for one in members]
    pair = status["pair"] or {}
    has_replica = pair.get("replica") is not None
    maybe = {
        "memory_limit": status.get("memory_limit") or None,
        "lag": max(steps) - min(steps) if steps else None,
        "behind": max(0, pair["position"] - pair["replica"]) if has_replica else None,
    }
    return row | {name: number for name, number in maybe.items() if number is not None}


def row_line(row: Mapping[str, Any], bytes_max: int) -> bytes:
    """The row as a line; where it is too long, without the smallest tables."""
    tables = list(row["tables"])
    while len(line := json.dumps({**row, "tables": tables}).encode() + b"\n") > bytes_max:
        tables = tables[: len(tables) // 2]
    return line


def read_server(data: bytes) -> dict[str, Any] | None:
    """The latest row among lines of a server; None where there is none.

    >>> row = {**dict.fromkeys(NUMBERS, 1), "is_primary": True, "tables": [["t", 3, 96]]}
    >>> read_server(row_line(row, 999)) == row
    True
    """
    for line in reversed(data.splitlines()):
        try:
            said = json.loads(line)
            names = [*NUMBERS, *(name for name in MAYBE if name in said)]
            row: dict[str, Any] = {name: int(said[name]) for name in names}
            row["is_primary"] = bool(said["is_primary"])
            row["tables"] = [[str(n), int(rows), int(size)] for n, rows, size in said["tables"]]
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
            continue
        return row
    return None
