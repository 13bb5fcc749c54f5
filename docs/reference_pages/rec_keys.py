"""Every key of every form as Markdown, for docs/guide/migrating-from-paddlerec.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paddock.rec.compat import v01, v18
from paddock.rec.config import backend, forms
from paddock.rec.config.keys import IGNORED, MAPPED, OURS, REFUSED, Key

SECTIONS: tuple[tuple[str, str, Sequence[Key]], ...] = (
    ("2.x: `runner:`", "runner.", forms.RUNNER),
    ("2.x: the others", "", forms.TOP),
    ("1.8.5: the top", "", v18.TOP),
    ("1.8.5: an entry of `runner:`", "", v18.RUNNER),
    ("1.8.5: an entry of `phase:`", "", v18.PHASE),
    ("1.8.5: an entry of `dataset:`", "", v18.DATASET),
    ("0.1: `train:`", "train.", v01.TRAIN),
    ("0.1: `evaluate:`", "evaluate.", v01.EVALUATE),
    ("backend.yaml: below `engine:`, or the top", "", backend.TOP),
    ("backend.yaml: `submit:`", "submit.", backend.SUBMIT),
)


@dataclass(frozen=True)
class Language:
    """The words around the keys; what a key means is told in English on both pages."""

    head: str
    read: str
    unread: Mapping[str, str]
    otherwise: str
    own: str


ENGLISH = Language(
    "| key | | value | meaning; or what to write instead |\n|---|---|---|---|",
    "read",
    {MAPPED: "mapped", IGNORED: "no effect", REFUSED: "refused"},
    ", else ",
    "Of our own, in every form",
)
CHINESE = Language(
    "| 键 | | 值 | 含义；或应改写成什么 |\n|---|---|---|---|",
    "读取",
    {MAPPED: "映射", IGNORED: "无作用", REFUSED: "拒绝"},
    "，默认 ",
    "Paddock 自己的键，各种写法通用",
)


def markdown(language: Language = ENGLISH) -> str:
    """A table for each section of each form, and one of our own keys."""
    ours = set(OURS)
    blocks = []
    for title, prefix, table in SECTIONS:
        keys = [key for key in table if key not in ours]
        blocks.append(
            "\n".join([f"### {title}", "", language.head, *_rows(keys, prefix, language)])
        )
    own = [f"### {language.own}", "", language.head, *_rows(OURS, "", language)]
    return "\n\n".join([*blocks, "\n".join(own)]) + "\n"


def _rows(keys: Sequence[Key], prefix: str, language: Language) -> Iterator[str]:
    for key in keys:
        is_told = key.kind in language.unread or key.kind == "any"
        kind = "" if is_told else key.kind
        kind += f"{language.otherwise}{key.default}" if key.default else ""
        state = language.unread.get(key.kind, language.read)
        yield f"| `{prefix}{key.name}` | {state} | {kind} | {key.what} |"
