"""What .gitignore and .paddockignore leave out, as git reads them (gitignore(5)). Pure.

Works on bytes, as git does: `?` is one byte. Rules of a directory's own file come after those of
the directories above it; the last rule that fits decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

IGNORE_FILES = (b".gitignore", b".paddockignore")  # in this order: ours has the last word
_SPECIAL = b"*?[\\"  # what ends the literal part of a pattern (is_glob_special of git)
_RANGES = {
    b"alnum": b"09AZaz", b"alpha": b"AZaz", b"blank": b"\t\t  ", b"cntrl": b"\0\x1f\x7f\x7f",
    b"digit": b"09", b"graph": b"!~", b"lower": b"az", b"print": b" ~", b"punct": b"!/:@[`{~",
    b"space": b"\t\r  ", b"upper": b"AZ", b"xdigit": b"09AFaf",
}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One line. fits: what the name matches, or the path below the file's directory."""

    fits: re.Pattern[bytes]
    is_negated: bool
    for_directories: bool
    by_name: bool


@dataclass(frozen=True)
class Rules:
    """The lines of one directory's files, and those of the directories above it.

    base: that directory, with "/" at its end; b"" for the root.
    """

    base: bytes = b""
    rules: tuple[Rule, ...] = ()
    above: Rules | None = None

    def ignores(self, path: bytes, *, is_directory: bool) -> bool:
        """Whether a path in that directory, or below it, is left out; parents are not asked."""
        name = path.rpartition(b"/")[2]
        below = path[len(self.base) :]
        for rule in reversed(self.rules):
            if rule.for_directories and not is_directory:
                continue
            if rule.fits.fullmatch(name if rule.by_name else below):
                return not rule.is_negated
        return self.above is not None and self.above.ignores(path, is_directory=is_directory)


def read_rules(text: bytes) -> tuple[Rule, ...]:
    """The rules in a file."""
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return tuple(rule for rule in map(_read_rule, lines) if rule is not None)


def translate(pattern: bytes, *, is_path: bool) -> re.Pattern[bytes] | None:
    """A pattern as a regular expression, None when it never fits anything.

    is_path: "/" is matched by "/" and by "**" only.
    """
    first = next((i for i, byte in enumerate(pattern) if byte in _SPECIAL), len(pattern))
    out = []
    at = 0
    while at < len(pattern):
        byte = pattern[at : at + 1]
        if byte == b"\\":
            if at + 1 == len(pattern):
                return None
            out.append(re.escape(pattern[at + 1 : at + 2]))
            at += 2
        elif byte == b"?":
            out.append(b"[^/]" if is_path else b".")
            at += 1
        elif byte == b"*":
            text, at = _stars(pattern, at, first, is_path=is_path)
            out.append(text)
        elif byte == b"[":
            found = _bracket(pattern, at + 1)
            if found is None:
                return None
            allowed, at = found
            out.append(_one_of(allowed - {ord("/")} if is_path else allowed))
        else:
            out.append(re.escape(byte))
            at += 1
    return re.compile(b"".join(out), re.DOTALL)


def _read_rule(line: bytes) -> Rule | None:
    line = _without_end_spaces(line.removesuffix(b"\r"))
    if not line or line.startswith(b"#"):
        return None
    is_negated = line.startswith(b"!")
    pattern = line[is_negated:]
    for_directories = pattern.endswith(b"/")
    pattern = pattern[: len(pattern) - for_directories]
    by_name = b"/" not in pattern
    fits = translate(pattern if by_name else pattern.removeprefix(b"/"), is_path=not by_name)
    return None if fits is None else Rule(fits, is_negated, for_directories, by_name)


def _without_end_spaces(line: bytes) -> bytes:
    r"""Spaces at the end do not count, but one after a backslash does."""
    kept = at = 0
    while at < len(line):
        if line[at : at + 1] == b"\\":
            at += 1
        elif line[at : at + 1] == b" ":
            at += 1
            continue
        at += 1
        kept = at
    return line[:kept]


def _stars(pattern: bytes, at: int, first: int, *, is_path: bool) -> tuple[bytes, int]:
    """One or more stars: as an expression, and where the pattern goes on."""
    end = at
    while pattern[end : end + 1] == b"*":
        end += 1
    if not is_path:
        return b".*", end
    # git compares the literal beginning by itself: what follows it is a beginning, too
    begins = at == first or pattern[at - 1 : at] == b"/"
    after = pattern[end : end + 2]
    if end - at < 2 or not begins or not (after[:1] in (b"", b"/") or after == b"\\/"):
        return b"[^/]*", end
    if after[:1] == b"/":
        return b"(?:.*/)?", end + 1
    return b".*", end


def _bracket(pattern: bytes, at: int) -> tuple[frozenset[int], int] | None:
    """The bytes that [...] allows, and what comes after it; None when it has no end."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    found: set[int] = set()
    previous = -1
    is_first = True
    while is_first or pattern[at : at + 1] != b"]":
        is_first = False
        if at >= len(pattern):
            return None
        byte = pattern[at]
        if byte == ord("-") and previous >= 0 and pattern[at + 1 : at + 2] not in (b"", b"]"):
            at += 1 + (pattern[at + 1 : at + 2] == b"\\")
            if at >= len(pattern):
                return None
            found |= set(range(previous, pattern[at] + 1))
            previous = -1
        elif pattern[at : at + 2] == b"[:":
            end = pattern.find(b"]", at + 2)
            if end < 0:
                return None
            name = pattern[at + 2 : end - 1]
            if pattern[end - 1 : end] != b":" or end - 1 < at + 2:
                found.add(ord("["))  # no class: a bracket like any other
                previous = -1
            elif name not in _RANGES:
                return None
            else:
                ranges = _RANGES[name]
                for low, high in zip(ranges[::2], ranges[1::2], strict=True):
                    found |= set(range(low, high + 1))
                previous, at = -1, end
        else:
            if byte == ord("\\"):
                at += 1
                if at >= len(pattern):
                    return None
                byte = pattern[at]
            found.add(byte)
            previous = byte
        at += 1
    return frozenset(range(256)) - found if negated else frozenset(found), at + 1


def _one_of(allowed: Iterable[int]) -> bytes:
    inside = b"".join(b"\\x%02x" % byte for byte in sorted(allowed))
    return b"[" + inside + b"]" if inside else b"(?!)"
