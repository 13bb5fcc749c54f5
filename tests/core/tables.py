"""Reads the state tables of docstrings, and writes docs/concepts/state-machines.md from them."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.agent import client, election_state, life
from paddock.core import membership, supervisor, warming

NOT_PHASES = ("any", "busy", "replica")


@dataclass(frozen=True)
class Row:
    """One line of a state table."""

    phase: str
    event: str
    next: str
    actions: str

    @property
    def is_move(self) -> bool:
        """Whether the phase changes."""
        return self.next not in ("same", self.phase, *NOT_PHASES)


def read_table(docstring: str | None) -> list[Row]:
    """The rows of the table in a module's docstring, in order."""
    lines = (docstring or "").split("\n")
    at = next(i for i, line in enumerate(lines) if set(line.strip()) == {"-", " "})
    starts = [i for i, c in enumerate(lines[at]) if c == "-" and lines[at][i - 1 : i] in ("", " ")]
    rows = []
    for line in lines[at + 1 :]:
        if not line.strip():
            break
        ends = [*starts[1:], len(line)]
        rows.append(Row(*(line[a:b].strip() for a, b in zip(starts, ends, strict=True))))
    return rows


def write_table(rows: list[Row]) -> str:
    """The same table in Markdown."""
    lines = ["| phase | event | next | actions |", "|---|---|---|---|"]
    for row in rows:
        cells = (row.phase, row.event, row.next, row.actions)
        lines.append("| " + " | ".join(c.replace("|", "or") for c in cells) + " |")
    return "\n".join(lines)


def moves_of(rows: list[Row]) -> dict[tuple[str, str], list[str]]:
    """The moves of a table, with all events of each; where an event has several, what is done."""
    moves: dict[tuple[str, str], list[str]] = {}
    ways: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        ways.setdefault((row.phase, row.event), set()).add(row.next)
    for row in rows:
        if row.is_move:
            event = row.event
            if len(ways[row.phase, row.event]) > 1:
                event = f"{event} / {row.actions}"  # the event alone does not tell which way
            known = moves.setdefault((row.phase, row.next), [])
            if event not in known:
                known.append(event)
    return moves


# Of each section: title, what it is about, the picture of tests/pictures, the module.
SECTIONS = (
    (
        "Membership: the whole job",
        "One per job, in the coordinator. Who is in, which attempt runs, and how it ends.\n"
        "The first verdict wins: what made the attempt stop is not changed by what follows.",
        "membership", membership,
    ),
    (
        "Life: one node among the others",
        "One per launcher, where a job has several nodes: it coordinates, or it follows.",
        "life", life,
    ),
    (
        "Supervisor: one node, one attempt",
        "One per node and attempt. Starts nothing and judges nothing: it watches processes,\n"
        "stops them, and insists.",
        "supervisor", supervisor,
    ),
    (
        "Warming: one node, with `--warm on`",
        "One per launcher. Its process imports once and forks the processes of each attempt.\n"
        "Busy: probing, loading or forking.",
        "warming", warming,
    ),
    (
        "Connection: a member and its coordinator",
        "One per node, where a job has several.",
        "connection", client,
    ),
    (
        "Election: by etcd",
        "One per launcher, with `--master etcd://`. A view is what etcd holds at one revision;\n"
        "(\\*): Reelected, or Deposed and then Elected if somebody led in between.",
        "election", election_state,
    ),
)  # fmt: skip


def write_document() -> str:
    """The whole page."""
    lines = [
        "# State machines",
        "",
        "English | [中文](state-machines.zh.md)",
        "",
        "<!-- Generated from the tables of the modules by tests/core/test_tables.py;",
        "     PADDOCK_RECORD=1 python -m pytest tests/core/test_tables.py writes it anew. -->",
        "",
        "The first four machines decide everything that happens to a job; the last two are how",
        "its nodes find each other. They ask no clock: events and the time go in, actions come",
        "out, a shell carries them out. Stories of the first and the third, event by event, are in",
        "`tests/scenarios/`. In a picture a lane is a state, and an arrow a move with its events;",
        "what moves nothing is in the table.",
        "",
    ]
    for title, about, name, module in SECTIONS:
        picture = f"![{title}: an arrow for each move](../pictures/{name}.svg)"
        lines += [
            f"## {title}",
            "",
            about,
            "",
            picture,
            "",
            write_table(read_table(module.__doc__)),
            "",
        ]
    return "\n".join(lines)
