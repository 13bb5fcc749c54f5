"""What all pictures have in common: colours for light and dark, text that stays text. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from unicodedata import east_asian_width

SANS = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# name: light, dark. Contrast of text is 4.5:1 or more on its ground.
COLOURS = {
    "ground": ("#ffffff", "#0d1117"),
    "panel": ("#f3f5f8", "#161b22"),
    "ink": ("#1f2328", "#e6edf3"),
    "quiet": ("#59636e", "#9198a1"),
    "line": ("#c4cbd3", "#3d444d"),
    "forward": ("#0a5fd0", "#58a6ff"),
    "back": ("#a8480b", "#f0883e"),
    "good": ("#17722f", "#3fb950"),
    "bad": ("#c21c2b", "#ff7b72"),
}


@dataclass(frozen=True)
class Picture:
    """What becomes one file. body: elements, in the order they are painted; css: more rules."""

    width: int
    height: int
    title: str
    described: str
    body: list[str]
    css: str = ""

    def text(self) -> str:
        """The SVG file."""
        parts = [shape("rect", width=self.width, height=self.height, rx=8, fill="ground")]
        parts += self.body
        said = "\n".join(parts)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}"'
                f' width="{self.width}" height="{self.height}" role="img"'
                ' aria-labelledby="title described">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="described">{escape(self.described)}</desc>',
                "<style>",
                f"svg {{ font-family: {SANS}; font-size: 13px; }}",
                *rules(said, 0),
                "@media (prefers-color-scheme: dark) {",
                *rules(said, 1),
                "}",
                *([self.css] if self.css else []),
                "</style>",
                said,
                "</svg>",
                "",
            ]
        )


def rules(said: str, theme: int) -> list[str]:
    """Colours by class, those that are used. Classes and not variables: not every program that
    shows SVG knows those."""
    used = set(re.findall(r"\b[fs]-[a-z]+", " ".join(re.findall(r'class="([^"]*)"', said))))
    found = [f"text {{ fill: {COLOURS['ink'][theme]}; }}"]
    for name, pair in COLOURS.items():
        for letter, key in (("f", "fill"), ("s", "stroke")):
            if f"{letter}-{name}" in used:
                found.append(f".{letter}-{name} {{ {key}: {pair[theme]}; }}")
    return found


def width_of(text: str, size: float = 13) -> float:
    """About how wide a line of text is, rather more than less. size: of the font, in pixels."""
    return sum(size * (1.0 if east_asian_width(c) in "WF" else 0.56) for c in text)


def words(x: float, y: float, text: str, **how: object) -> str:
    """One line of text."""
    return shape("text", escape(text, quote=False), x=x, y=y, **how)


def box(x: float, y: float, width: float, height: float, **how: object) -> str:
    """A rectangle with round corners."""
    how = {"rx": 7, "fill": "panel", "stroke": "line", **how}
    return shape("rect", x=x, y=y, width=width, height=height, **how)


def arrow(points: list[tuple[float, float]], colour: str = "quiet", **how: object) -> str:
    """A line with a head at its end; its last part is straight along one axis."""
    (x1, y1), (x2, y2) = points[-2:]
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    head = [
        (x2, y2),
        (x2 - 8 * dx - 4 * dy, y2 - 8 * dy - 4 * dx),
        (x2 - 8 * dx + 4 * dy, y2 - 8 * dy + 4 * dx),
    ]
    how = {"fill": "none", "stroke": colour, "stroke_width": 1.6, **how}
    line = shape("polyline", points=listed([*points[:-1], (x2 - 6 * dx, y2 - 6 * dy)]), **how)
    return line + shape("polygon", points=listed(head), fill=colour)


def listed(points: list[tuple[float, float]]) -> str:
    """Points as SVG writes them."""
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def shape(name: str, inside: str = "", **how: object) -> str:
    """An element; `_` stands for `-` in names, fill and stroke may be a name of COLOURS."""
    classes = []
    written = []
    for key, wanted in how.items():
        if key in ("fill", "stroke") and wanted in COLOURS:
            classes.append(f"{key[0]}-{wanted}")
        elif key == "class_":
            classes.append(str(wanted))
        else:
            text = f"{wanted:g}" if isinstance(wanted, (int, float)) else escape(str(wanted))
            written.append(f'{key.replace("_", "-")}="{text}"')
    if classes:
        written.append(f'class="{" ".join(classes)}"')
    opened = " ".join([f"<{name}", *written])
    return f"{opened}>{inside}</{name}>" if inside else f"{opened}/>"
