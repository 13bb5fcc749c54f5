"""How a shard changes hands: who does what in which phase, as the tables of ownership.py say."""

from __future__ import annotations

import re

from paddock.ps.shards import ownership
from pictures import svg

WIDTH, MARGIN = 860, 20
TITLE = "Parameter server: a shard changes hands"
COLUMNS = ("phase", "owner (giver)", "next owner (taker)")
LEFT, RIGHT = 120, 500  # x of what the owner does, and the next one
LINE, SIZE = 17, 13


def read_phases(docstring: str) -> list[tuple[str, str, str]]:
    """Phase, what the giver does, what the taker does; lines that go on are joined."""
    lines = docstring.split("\n")
    at = next(i for i, line in enumerate(lines) if line.split() == " ".join(COLUMNS).split())
    starts = [lines[at].index(name) for name in COLUMNS]
    found: list[list[str]] = []
    for line in lines[at + 1 : lines.index("", at)]:
        whole = line[starts[1] :].strip() if line[starts[2] - 2 : starts[2]].strip() else ""
        cells = [line[: starts[1]].strip(), whole or line[starts[1] : starts[2]].strip()]
        cells.append("" if whole else line[starts[2] :].strip())
        if cells[0]:
            found.append(cells)
        else:
            pairs = zip(found[-1][1:], cells[1:], strict=True)
            found[-1][1:] = [" ".join(pair).strip() for pair in pairs]
    return [(phase, owner, taker) for phase, owner, taker in found]


def read_answers(docstring: str) -> list[tuple[str, str, str]]:
    """What the giver answers to a taker that asks, when, and what the taker does then."""
    return re.findall(r"^    (given|coming|gone) +(.*?)  +(.*)$", docstring, re.MULTILINE)


def folded(text: str, letters: int = 46) -> list[str]:
    """Text in lines of so many letters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= letters:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def draw() -> svg.Picture:
    """Two columns, a row a phase; below what a taker is told that asks."""
    docstring = ownership.__doc__ or ""
    phases = read_phases(docstring)
    assert tuple(phase for phase, _, _ in phases) == ownership.PHASES
    body = [
        svg.words(MARGIN, 28, TITLE, font_size="16", font_weight="600"),
        svg.words(LEFT, 60, COLUMNS[1], font_weight="600"),
        svg.words(RIGHT, 60, COLUMNS[2], font_weight="600"),
    ]
    y = 72.0
    for number, (phase, owner, taker) in enumerate(phases):
        texts = folded(owner), folded(taker)
        height = LINE * max(map(len, texts)) + 14
        if number % 2 == 0:
            body.append(svg.box(8, y, WIDTH - 16, height, stroke="none"))
        body.append(svg.words(MARGIN, y + 20, phase, font_weight="600", fill="forward"))
        for x, lines in zip((LEFT, RIGHT), texts, strict=True):
            for row, line in enumerate(lines):
                body.append(svg.words(x, y + 20 + LINE * row, line))
        if owner and taker:
            middle = y + 16
            start = LEFT + svg.width_of(texts[0][0]) + 8
            body.append(svg.arrow([(start, middle), (RIGHT - 8, middle)], "forward"))
        y += height
    y += 30
    body.append(
        svg.words(MARGIN, y, "A taker that asks what became of it is told:", font_weight="600")
    )
    for answer, when, then in read_answers(docstring):
        y += LINE + 6
        body.append(svg.words(MARGIN, y, answer, font_weight="600", fill="back"))
        body.append(svg.words(LEFT, y, when))
        body.append(svg.words(RIGHT + 60, y, then))
    said = "; ".join(f"{p}: giver: {a or '-'}, taker: {b or '-'}" for p, a, b in phases)
    return svg.Picture(WIDTH, round(y + 20), TITLE, said, body)
