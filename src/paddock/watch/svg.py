"""Curves, timelines and bars as SVG. Pure; the style sheet gives colours (classes c0 to c7).

No style attribute and no script: the pages' Content-Security-Policy forbids both. A sheet of
charts is a file of its own, and has its style in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import floor, isfinite, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COLOURS = 8
WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 10, 26  # margins of a chart
WIDE = 1140  # of a timeline, and of a bar
ROW, LABEL = 26, 90  # height of a row of a timeline, least width of its labels
LETTER, LETTERS = 7, 42  # width of a letter of them; how many
BAR = 22
HEADING = 24  # above each chart of a sheet
TICKS = 5
Y_MAX = 1e305  # differences of larger values are infinite
UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
# Of a sheet, which has no style sheet: as web/static/web.css.
STYLE = """<style>
text { font-family: system-ui, sans-serif; fill: #1b1f24 } .paper { fill: #fff }
.grid { stroke: #d8dee4 } .tick { font-size: 11px; text-anchor: middle; fill: #59636e }
.tick.y { text-anchor: end; dominant-baseline: middle } .label { font-weight: 600; font-size: 13px }
.line { fill: none; stroke: #2f7ed8; stroke-width: 1.8; stroke-linecap: round }
@media (prefers-color-scheme: dark) { text { fill: #e6e8eb } .paper { fill: #14171b }
.grid { stroke: #333b44 } .tick { fill: #9aa4af } }
</style>"""


@dataclass(frozen=True)
class ChartLine:
    """A line of a chart. points: (x, y) in order of x."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class TimelineRow:
    """A row of a timeline. spans: kind (a class of the style sheet), its text, begin, end."""

    label: str
    spans: tuple[tuple[str, str, float, float], ...]


def number_text(number: float) -> str:
    """A number as short as a tick's label can be.

    >>> number_text(1234567), number_text(0.00025), number_text(40.0)
    ('1.23M', '0.00025', '40')
    """
    for size, name in UNITS:
        if abs(number) >= size:
            return f"{number / size:.3g}{name}"
    return f"{number:.3g}"


def seconds_text(seconds: float) -> str:
    """A duration without more figures than anybody reads.

    >>> seconds_text(40.0), seconds_text(75), seconds_text(5400), seconds_text(7200)
    ('40 s', '1m15s', '1h30m', '2h')
    """
    if abs(seconds) < 60:
        return f"{seconds:.3g} s"
    size, names = (60, "ms") if abs(seconds) < 3600 else (3600, "hm")
    whole, rest = divmod(round(seconds * 60 / size), 60)
    return f"{whole}{names[0]}" + (f"{rest:02}{names[1]}" if rest else "")


def ticks(low: float, high: float, most: int = TICKS) -> list[float]:
    """Round numbers from low to high.

    >>> ticks(0.0, 1.0), ticks(3.0, 3.0)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [3.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / most
    size = 10.0 ** floor(log10(rough))
    step = next((s for s in (size, 2 * size, 2.5 * size, 5 * size) if s >= rough), 10 * size)
    first = floor(low / step) + (low % step > step * 1e-9)
    count = int((high - first * step) / step + 1e-9) + 1
    return [round((first + n) * step, 12) for n in range(count)]


def time_ticks(low: float, high: float) -> list[float]:
    """Round times from low to high, in seconds.

    >>> time_ticks(0.0, 400.0)
    [0.0, 120.0, 240.0, 360.0]
    """
    unit = 3600.0 if high - low > 7200 else 60.0 if high - low > 120 else 1.0
    return [tick * unit for tick in ticks(low / unit, high / unit)]


def chart(title: str, lines: Sequence[ChartLine], *, is_time: bool = True, empty: str = "") -> str:
    """Lines over time (seconds) or over steps. Values that are no finite number leave a gap."""
    seen = [p for line in lines for p in line.points if isfinite(p[0]) and abs(p[1]) < Y_MAX]
    if not seen:
        head = _head(title, WIDTH, HEIGHT)
        at = f'x="{WIDTH / 2}" y="{HEIGHT / 2}"'
        return f'{head}<text class="tick" {at}>{escape(empty)}</text></svg>'
    x_low, x_high = min(p[0] for p in seen), max(p[0] for p in seen)
    y_low, y_high = min(p[1] for p in seen), max(p[1] for p in seen)
    if y_high - y_low <= max(1e-9 * abs(y_high), 1 / Y_MAX):  # sums of floats, the same each time
        around = abs(y_high) / 2 if abs(y_high) > 2 / Y_MAX else 1.0
        y_low, y_high = y_low - around, y_high + around

    def x_of(x: float) -> float:
        share = (x - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y_of(y: float) -> float:
        return HEIGHT - BOTTOM - (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    # For web.js, which writes the values below the pointer: what lies at the corners of the area.
    corners = (LEFT, WIDTH - RIGHT, x_low, x_high, HEIGHT - BOTTOM, TOP, y_low, y_high)
    area = " ".join(map(repr, corners))
    unit = ' data-unit="s"' if is_time else ""
    parts = [_head(title, WIDTH, HEIGHT, f'class="chart" data-area="{area}"{unit} ')]
    for y in ticks(y_low, y_high):
        at = f"{y_of(y):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick y" x="{LEFT - 6}" y="{at}">{number_text(y)}</text>')
    text = seconds_text if is_time else number_text
    for x in (time_ticks if is_time else ticks)(x_low, x_high):
        at = f"{x_of(x):.1f}"
        parts.append(f'<text class="tick" x="{at}" y="{HEIGHT - 8}">{text(x)}</text>')
    for number, line in enumerate(lines):
        path = _path([(x_of(x), y_of(y)) if abs(y) < Y_MAX else None for x, y in line.points])
        name = f"<title>{escape(line.name)}</title>"
        parts.append(f'<path class="line c{number % COLOURS}" d="{path}">{name}</path>')
    return "".join([*parts, "</svg>"])


def sheet(charts: Sequence[tuple[str, str]]) -> str:
    """Charts with their headings below one another, as a file of its own, light or dark.

    charts: (heading, SVG of chart()).
    """
    height = len(charts) * (HEADING + HEIGHT)
    size = f'width="{WIDTH}" height="{height}"'
    parts = [_head("", WIDTH, height).replace("<svg ", f"<svg {size} ", 1), STYLE]
    parts.append(f'<rect class="paper" {size}/>')
    for number, (heading, text) in enumerate(charts):
        y = number * (HEADING + HEIGHT)
        parts.append(
            f'<text class="label" x="{LEFT}" y="{y + HEADING / 2}">{escape(heading)}</text>'
        )
        at = f'y="{y + HEADING}" width="{WIDTH}" height="{HEIGHT}"'
        parts.append(text.replace("<svg ", f"<svg {at} ", 1))
    return "".join([*parts, "</svg>"])


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    found, word = [], "M"
    for point in points:
        if point is None:
            word = "M"
            continue
        found.append(f"{word}{point[0]:.1f} {point[1]:.1f}")
        if word == "M":
            found.append("h0")  # a point alone is seen, by its round cap
        word = "L"
    return "".join(found)


def timeline(title: str, rows: Sequence[TimelineRow], seconds: float) -> str:
    """Rows of spans over the time of a run, from 0 to `seconds`."""
    height = ROW * len(rows) + BOTTOM
    left = max(LABEL, LETTER * min(LETTERS, max(len(row.label) for row in rows)))
    scale = (WIDE - left - 2 * RIGHT) / (seconds or 1.0)
    parts = [_head(title, WIDE, height)]
    for number, row in enumerate(rows):
        y = number * ROW
        label = escape(row.label[:LETTERS])
        parts.append(f'<text class="label" x="0" y="{y + ROW / 2 + 2}">{label}</text>')
        for kind, text, begin, end in row.spans:
            x, width = left + begin * scale, max(1.0, (end - begin) * scale)
            parts.append(
                f'<rect class="span {kind}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" '
                f'height="{ROW - 8}"><title>{escape(text)}</title></rect>'
            )
    for x in time_ticks(0.0, seconds):
        at = f"{left + x * scale:.1f}"
        parts.append(f'<text class="tick" x="{at}" y="{height - 8}">{seconds_text(x)}</text>')
    return "".join([*parts, "</svg>"])


def bar(title: str, parts: Sequence[tuple[str, str, float]]) -> str:
    """A bar of parts: kind (a class of the style sheet), its text, its share of 1."""
    found, x = [_head(title, WIDE, BAR, 'preserveAspectRatio="none" ')], 0.0
    for kind, text, share in parts:
        width = share * WIDE
        found.append(
            f'<rect class="span {kind}" x="{x:.2f}" y="0" width="{width:.2f}" height="{BAR}">'
            f"<title>{escape(text)}</title></rect>"
        )
        x += width
    return "".join([*found, "</svg>"])


def _head(title: str, width: float, height: float, more: str = "") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {more}viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">'
    )
