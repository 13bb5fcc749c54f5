"""Every key of every form as Markdown, for docs/guide/migrating-from-paddlerec.md. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paddock.rec.config import backend, v01, v2, v18
from paddock.rec.config.keys import IGNORED, MAPPED, READ, REFUSED, Key
from paddock.rec.config.ours import OURS

STATES = {READ: "read", MAPPED: "mapped", IGNORED: "no effect", REFUSED: "refused"}
SECTIONS: tuple[tuple[str, str, Sequence[Key]], ...] = (
    ("2.x: `runner:`", "runner.", v2.RUNNER),
    ("2.x: the others", "", v2.TOP),
    ("1.8.5: the top", "", v18.TOP),
    ("1.8.5: an entry of `runner:`", "", v18.RUNNER),
    ("1.8.5: an entry of `phase:`", "", v18.PHASE),
    ("1.8.5: an entry of `dataset:`", "", v18.DATASET),
    ("0.1: `train:`", "train.", v01.TRAIN),
    ("0.1: `evaluate:`", "evaluate.", v01.EVALUATE),
    ("backend.yaml: below `engine:`, or the top", "", backend.TOP),
    ("backend.yaml: `submit:`", "submit.", backend.SUBMIT),
)
HEAD = "| key | | value | meaning; or what to write instead |\n|---|---|---|---|"


def markdown() -> str:
    """A table for each section of each form, and one of our own keys."""
    ours = set(OURS)
    blocks = []
    for title, prefix, table in SECTIONS:
        keys = [key for key in table if key not in ours]
        blocks.append("\n".join([f"### {title}", "", HEAD, *_rows(keys, prefix)]))
    blocks.append("\n".join(["### Of our own, in every form", "", HEAD, *_rows(OURS, "")]))
    return "\n\n".join(blocks) + "\n"


def _rows(keys: Sequence[Key], prefix: str) -> Iterator[str]:
    for key in keys:
        kind = key.kind if key.state == READ and key.kind != "any" else ""
        kind += f", else {key.default}" if key.default else ""
        yield f"| `{prefix}{key.name}` | {STATES[key.state]} | {kind} | {key.what} |"
