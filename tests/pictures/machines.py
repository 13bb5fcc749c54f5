"""State machines as ladders: a lane for each state, an arrow for each move, its events above it.

The states and arrows are those of the tables in the docstrings of the code (core/tables.py reads
them); those of the operator's phases are what the recorded stories of tests/operator show it do.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from core.tables import NOT_PHASES, Row, moves_of, read_table
from paddock.agent.etcd_election import election_state
from paddock.agent.leadership import leadership_state
from paddock.agent.transport import client
from paddock.core.attempt import supervisor, warming
from paddock.core.rendezvous import membership
from paddock.operator.schema import PHASES
from paddock.ps.replication import state
from pictures import svg

STORIES = Path(__file__).resolve().parents[1] / "operator" / "scenarios"
WIDTH, MARGIN = 860, 20
HEAD, LANE_TOP, LINE, GAP = 48, 96, 16, 22  # y of the title's line, of the lanes; heights
SIZE = 12  # of the font of events

Moves = dict[tuple[str, str], list[str]]


@dataclass(frozen=True)
class Machine:
    """What is drawn. states: from left to right; moves: (from, to) with the events that make it."""

    title: str
    states: tuple[str, ...]
    moves: Moves
    start: str


def of_table(title: str, docstring: str | None) -> Machine:
    """The machine of a state table."""
    rows = read_table(docstring)
    moves = moves_of(rows)
    return Machine(title, order(rows, moves), moves, rows[0].phase)


def order(rows: list[Row], moves: Moves) -> tuple[str, ...]:
    """The states in the order of the table, those without a way out last."""
    names = [name for row in rows for name in (row.phase, row.next) if name not in NOT_PHASES]
    named = [name for name in dict.fromkeys(names) if any(name in move for move in moves)]
    final = [name for name in named if not any(name == start for start, _ in moves)]
    return (*(name for name in named if name not in final), *final)


def of_stories() -> Machine:
    """The phases of a PaddleJob; above an arrow the events that tell of it, the frequent first."""
    seen: dict[tuple[str, str], Counter[str]] = {}
    for path in sorted(STORIES.glob("*.txt")):
        phases: dict[str, str] = {}  # of each job; "" where there is only one
        move = "", ""
        for line in path.read_text("utf-8").splitlines():
            if line == "fresh" or line.startswith("job "):
                phases.clear()
            elif told := re.match(rf"(?:([\w.-]+): )?({'|'.join(PHASES)})\b", line):
                move = phases.get(told[1], told[2]), told[2]
                phases[told[1]] = told[2]
                if len({*move}) == 2:
                    seen.setdefault(move, Counter())
            elif move in seen and (event := re.match(r"(?:[\w.-]+:)? +event \w+ (\w+):", line)):
                seen[move][event[1]] += 1
                move = "", ""
    moves = {
        move: sorted(counts, key=lambda name: (-counts[name], name)) or ["(no event)"]
        for move, counts in sorted(seen.items(), key=lambda m: [PHASES.index(p) for p in m[0]])
    }
    return Machine("Operator: phases of a PaddleJob", PHASES, moves, PHASES[0])


def draw(machine: Machine) -> svg.Picture:
    """The ladder: from top to bottom the moves of each state, in the order of its table."""
    pitch = (WIDTH - 2 * MARGIN) / len(machine.states)
    lanes = {s: MARGIN + pitch * (i + 0.5) for i, s in enumerate(machine.states)}
    bands: list[str] = []
    rungs: list[str] = []
    y = float(LANE_TOP)
    for number, start in enumerate(dict.fromkeys(before for before, _ in machine.moves)):
        top = y
        shade = "panel" if number % 2 == 0 else "ground"
        for (before, after), events in machine.moves.items():
            if before == start:
                y += GAP / 2 + LINE * len(events)
                rungs += rung(lanes, before, after, events, y, shade)
                y += GAP / 2
        y += GAP / 2
        bands.append(svg.box(8, top, WIDTH - 16, y - top, fill=shade, stroke="none"))
    lines = [
        svg.shape("path", d=f"M{x:g} {HEAD + 28} V{y:g}", stroke="line", stroke_dasharray="3 4")
        for x in lanes.values()
    ]
    heads = [part for s, x in lanes.items() for part in head(machine, s, x, pitch)]
    title = svg.words(MARGIN, 28, machine.title, font_size="16", font_weight="600")
    body = [title, *bands, *lines, *heads, *rungs]
    return svg.Picture(WIDTH, round(y + 12), machine.title, describe(machine), body)


def head(machine: Machine, state: str, x: float, pitch: float) -> list[str]:
    """A state's name at the top of its lane; where a machine begins and ends is marked."""
    width = min(pitch - 8, svg.width_of(state) + 28)
    is_final = not any(state == start for start, _ in machine.moves)
    colour = "good" if is_final else "forward" if state == machine.start else "line"
    how = {"stroke": colour, "stroke_width": "2" if colour != "line" else "1"}
    return [
        svg.box(x - width / 2, HEAD, width, 28, rx="14", **how),
        svg.words(x, HEAD + 19, state, text_anchor="middle", font_weight="600"),
    ]


def rung(
    lanes: dict[str, float], before: str, after: str, events: list[str], y: float, shade: str
) -> list[str]:
    """One arrow with its events. A start that is no state (any, busy) is at the left edge."""
    # The ground shows around the letters, and not the lane through them.
    halo = {"paint_order": "stroke", "stroke": shade, "stroke_width": "4"}
    x1, x2 = lanes.get(before, float(MARGIN)), lanes[after]
    colour = "forward" if x2 > x1 else "back"
    left = min(x1, x2) + 10
    dot = svg.shape("circle", cx=x1, cy=y, r=4, fill=colour)
    shown = [svg.arrow([(x1, y), (x2, y)], colour), dot]
    if before not in lanes:
        events = [f"{before}: {event}" for event in events]
    for row, event in enumerate(events):
        width = svg.width_of(event, SIZE)
        x = max(MARGIN, min(left, WIDTH - MARGIN - width))
        at = y - 6 - LINE * (len(events) - 1 - row)
        shown.append(svg.words(x, at, event, font_size=SIZE, **halo))
    return shown


def describe(machine: Machine) -> str:
    """The same in words, for who does not see it."""
    moves = [f"{a} to {b}: {', '.join(events)}" for (a, b), events in machine.moves.items()]
    return f"States: {', '.join(machine.states)}. " + ". ".join(moves) + "."


MACHINES = {
    "membership": lambda: of_table("Membership: the whole job", membership.__doc__),
    "leadership": lambda: of_table(
        "Leadership: one node among the others", leadership_state.__doc__
    ),
    "supervisor": lambda: of_table("Supervisor: the ranks of one node", supervisor.__doc__),
    "warming": lambda: of_table("Warming: one node, with --warm on", warming.__doc__),
    "connection": lambda: of_table("Connection: a node's way to the coordinator", client.__doc__),
    "election": lambda: of_table("Election by etcd: one candidate", election_state.__doc__),
    "replica": lambda: of_table("Parameter server: one server of a pair", state.__doc__),
    "phases": of_stories,
}


def drawn(name: str) -> svg.Picture:
    """The picture of that name."""
    return draw(MACHINES[name]())
