"""What terminals showed, as an SVG: a still, which a reader has whole at the first look. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pictures import svg
from pictures.terminal import COLUMNS, Line, Piece

if TYPE_CHECKING:
    from collections.abc import Mapping

LETTER, HEIGHT, SIZE = 7.85, 18, 13  # a letter's width, a line's height, the font, in pixels
MARGIN = 16
WIDTH = round(2 * MARGIN + COLUMNS * LETTER)
# What differs each time, and what stands for it.
VARIES = {
    r"\(pid \d+\)": "(pid 4242)",
    r"\b\d+(\.\d+)? s\b": "2.0 s",
    r"\b\d\d:\d\d:\d\d,\d+\b": "12:00:00",
    r"\b\d{4}-\d\d-\d\d\b": "2026-01-01",
    r"\b\d+ bytes\b": "600 bytes",
    r"\b(train|paddle-digits)-\w{4}\b": r"\1-7c2a",
    r"\bPod: \w{6}\b": "Pod: abcdef",
}
# Lines that come when a node, or an import, was slow.
BY_CHANCE = r"waiting for nodes|were silent for their first|rank-hours$"


@dataclass(frozen=True)
class Pane:
    """One terminal of a cast: who types what, and what it showed."""

    prompt: str
    typed: str
    lines: tuple[Line, ...]
    at: float = 0.0


def normalised(line: Line, names: Mapping[str, str]) -> Line:
    """The line with what varies replaced. names: more patterns, and what stands for them."""
    pieces = []
    for piece in line.pieces:
        text = piece.text
        for pattern, instead in {**names, **VARIES}.items():
            text = re.sub(pattern, instead, text)
        pieces.append(Piece(text, piece.ink, piece.is_bold))
    return Line(line.at, tuple(pieces))


def transcript(panes: list[Pane]) -> str:
    """What a cast says, without colours and times: this is what must not change."""
    texts = [[f"{p.prompt}$ {p.typed}", *(line.text for line in p.lines)] for p in panes]
    return "\n".join(line.rstrip() for lines in texts for line in lines)


def compared(text: str) -> list[str]:
    """A transcript without what depends on who was faster, or on the processor's last digits.

    Nor on the digits of a process's number, after which a line may be broken elsewhere.
    """
    whole = re.sub(r"\n  (?=\S)", " ", text)
    lines = [line for line in whole.splitlines() if not re.search(BY_CHANCE, line)]
    lines = [re.sub(r"\d+ (min|h) (\d+ \w+)", "0.0 s", line) for line in lines]
    return sorted(re.sub(r"\d+\.\d+", "N.N", line) for line in lines)


def draw(title: str, panes: list[Pane]) -> svg.Picture:
    """The panes below one another."""
    body: list[str] = []
    y = 0.0
    for pane in panes:
        rows = [
            (Piece(f"{pane.prompt}$ ", "good"), Piece(pane.typed, is_bold=True)),
            *(part for line in pane.lines for part in wrapped(line.pieces)),
        ]
        height = HEIGHT * len(rows) + 2 * MARGIN - 6
        body.append(svg.box(4, y + 4, WIDTH - 8, height))
        for number, pieces in enumerate(rows):
            body.append(row(pieces, y + MARGIN + 12 + HEIGHT * number))
        y += height + 8
    return svg.Picture(WIDTH, round(y), title, transcript(panes), body, CSS)


def row(pieces: tuple[Piece, ...], y: float) -> str:
    """One line; each word group at its column, whatever font is there, and without spaces that a
    program might take together."""
    column = 0
    parts = []
    for piece in pieces:
        how = {"fill": piece.ink} if piece.ink else {}
        if piece.is_bold:
            how["font_weight"] = "600"
        for group in re.finditer(r"\S+( \S+)*", piece.text):
            x = MARGIN + LETTER * (column + group.start())
            fit = {"textLength": LETTER * len(group[0]), "lengthAdjust": "spacingAndGlyphs"}
            parts.append(svg.words(x, y, group[0], class_="mono", **fit, **how))
        column += len(piece.text)
    return "".join(parts)


def wrapped(pieces: tuple[Piece, ...]) -> list[tuple[Piece, ...]]:
    """A line as the terminal breaks it, at its last column."""
    rows: list[list[Piece]] = [[]]
    left = COLUMNS
    for piece in pieces:
        text = piece.text
        while text:
            if left == 0:
                rows.append([])
                left = COLUMNS
            rows[-1].append(Piece(text[:left], piece.ink, piece.is_bold))
            text, left = text[left:], max(0, left - len(text))
    return [tuple(each) for each in rows]


CSS = f".mono {{ font-family: {svg.MONO}; font-size: {SIZE}px; }}"
