"""The files of a package that git, .gitignore and .paddockignore leave out.

Where git is and the package is in a repository, git says what it ignores (gitignore(5), also its
global file and .git/info/exclude); elsewhere .gitignore is read as plain globs. .paddockignore is
plain globs everywhere, and has the last word.

A glob: * ? and [...] match within a name, ** also "/"; with "/" at its end it means directories
only; without "/" before that it is a name at any depth; after "!" it takes back what earlier lines
say. Globs of a directory's own file come after those of the directories above it; the last one that
matches decides. Works on bytes: `?` is one byte.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from typing import NamedTuple

OF_GIT, OURS = b".gitignore", b".paddockignore"
GIT_SECONDS_MAX = 60.0
GIT_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")  # of a hook's repository
_TOKENS = re.compile(rb"\*\*/|\*\*|\*|\?|\[[!^]?\]?[^\]]*\]|\\.|.", re.DOTALL)
_GLOBS = {b"**/": b"(?:.*/)?", b"**": b".*", b"*": b"[^/]*", b"?": b"[^/]"}


class IgnoreRule(NamedTuple):
    """A line of an ignore file. pattern: matches the path below the file's directory."""

    pattern: re.Pattern[bytes]
    is_negated: bool
    for_directories: bool


@dataclass(frozen=True)
class IgnoreRules:
    """The lines of the ignore files of a directory (base, with "/" at its end) and those above."""

    base: bytes = b""
    rules: tuple[IgnoreRule, ...] = ()
    above: IgnoreRules | None = None

    def verdict(self, path: bytes, *, is_directory: bool) -> bool | None:
        """Return True if a path below the directory is left out; None if no line matches it."""
        for rule in reversed(self.rules):
            if rule.for_directories and not is_directory:
                continue
            if rule.pattern.fullmatch(path, len(self.base)):
                return not rule.is_negated
        return self.above.verdict(path, is_directory=is_directory) if self.above else None


def read_rules(text: bytes) -> tuple[IgnoreRule, ...]:
    """Return the rules in a file."""
    rules = []
    for line in map(bytes.strip, text.removeprefix(b"\xef\xbb\xbf").splitlines()):
        if line and not line.startswith(b"#"):
            is_negated = line.startswith(b"!")
            glob = line[is_negated:].removesuffix(b"/")
            glob = glob.removeprefix(b"/") if b"/" in glob else b"**/" + glob
            rules.append(IgnoreRule(translate(glob), is_negated, line.endswith(b"/")))
    return tuple(rules)


def translate(pattern: bytes) -> re.Pattern[bytes]:
    """Return a glob of paths as a regular expression.

    >>> bool(translate(b"data/*-[0-9]").fullmatch(b"data/train-7"))
    True
    """
    try:
        return re.compile(b"".join(map(_translated, _TOKENS.findall(pattern))), re.DOTALL)
    except re.error:  # [z-a]
        return re.compile(re.escape(pattern))


def _translated(token: bytes) -> bytes:
    if token in _GLOBS:
        return _GLOBS[token]
    if token[:1] == b"[" and len(token) > 1:
        is_negated = token[1:2] in (b"!", b"^")
        inside = re.sub(rb"([\\\[&~|])", rb"\\\1", token[1 + is_negated : -1])
        return b"(?!/)[" + b"^" * is_negated + inside + b"]"
    return re.escape(token[-1:])


def ignored_by_git(directory: bytes) -> frozenset[bytes] | None:
    """Return the paths below a directory that git ignores; "/" ends a directory ignored as a whole.

    None where git is not installed, or the directory is in no repository, or ignored itself.
    Source: git-ls-files(1); not its list of files to keep, which has neither empty directories nor
    files that cannot be sent.
    """
    words = ("ls-files", "-oi", "--directory", "--exclude-standard", "-z")
    try:
        done = subprocess.run(
            ["git", *words], cwd=directory, stdin=subprocess.DEVNULL, capture_output=True,
            env={k: v for k, v in os.environ.items() if k not in GIT_PLACES}, check=False,
            timeout=GIT_SECONDS_MAX,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = frozenset(done.stdout.split(b"\0"))
    # A directory without other files than ignored ones is listed, too, with these after it.
    holders = {path[: at.end()] for path in found for at in re.finditer(b"/", path[:-1])}
    return None if done.returncode or b"./" in found else found - holders
