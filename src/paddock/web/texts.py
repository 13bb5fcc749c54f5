"""The languages of the pages. Templates and code have English; chinese.txt has its Chinese.

It also has the sentences that come with a run, as why it failed. What a program wrote, names and
code stay as they are.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

LANGUAGES = {"en": "English", "zh": "中文"}
CATALOGUE = Path(__file__).parent / "chinese.txt"
LANGUAGE_COOKIE = "paddock-language"
LETTERS_MAX = 2000  # a longer text is no sentence of ours


def translator(language: str) -> Callable[[str], str]:
    """A call that gives an English text in a language; a text without Chinese as it is.

    >>> translator("zh")("Runs"), translator("en")("exited with code 7")
    ('作业', 'exited with code 7')
    """
    return in_chinese if language == "zh" else str


@lru_cache(4096)
def in_chinese(text: str) -> str:
    """A text in Chinese, each part of it up to "; " for itself.

    >>> in_chinese("rank 3 (pid 812) on node1 exited with code 7; all ranks exited cleanly")
    'node1 上的 rank 3（pid 812）以退出码 7 结束；各 rank 均正常退出'
    """
    found = ""
    while (whole := _sentence(text)) == text and "; " in text:
        first, mark, text = text.partition("; ")
        known = _sentence(first)
        found += known + (mark if known == first else "；")
    return found + whole


def _sentence(text: str) -> str:
    words, patterns = _catalogue()
    if text in words or len(text) > LETTERS_MAX:
        return words.get(text, text)
    for pattern, chinese in patterns:
        if match := pattern.fullmatch(text):
            return chinese.format(*map(in_chinese, match.groups()))
    return text


@cache
def _catalogue() -> tuple[dict[str, str], list[tuple[re.Pattern[str], str]]]:
    """The whole texts, and those with a figure or any text in them."""
    lines = CATALOGUE.read_text("utf-8").split("\n")
    lines = [line for line in lines if line[:2] not in ("", "//")]
    words = dict(zip(lines[::2], lines[1::2], strict=True))
    figure, text = r"(-?\d[\d.,]*)", r"((?:(?!; ).)+?)"
    patterns = [
        (re.compile(re.escape(english).replace(r"\#", figure).replace(r"\{\}", text)), chinese)
        for english, chinese in words.items()
        if "#" in english or "{}" in english
    ]
    return words, patterns


def language_of(request: Request) -> str:
    """The language of a page: that of the switch, the cookie or the browser."""
    asked = request.query_params.get("lang") or request.cookies.get(LANGUAGE_COOKIE, "")
    return chosen_language(asked, request.headers.get("accept-language", ""))


def chosen_language(asked: str, accepted: str) -> str:
    """The language of a page. asked: by the switch; accepted: the header Accept-Language.

    >>> chosen_language("", "zh-CN,zh;q=0.9,en;q=0.8"), chosen_language("en", "zh")
    ('zh', 'en')
    """
    if asked in LANGUAGES:
        return asked
    names = (part.strip()[:2].lower() for part in accepted.split(",", 20))  # browsers sort them
    return next((name for name in names if name in LANGUAGES), "en")
