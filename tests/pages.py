"""Reads the pages: README, CONTRIBUTING, docs/ and the READMEs of examples/. Runs nothing.

What a block of a page is for:

```bash     Lines to copy. Each is run by itself, in a folder with stand-in scripts, and must end
            with 0, or with N where its comment says "exit code N". A comment above the block, which
            readers do not see, changes that: <!-- needs: two hosts --> (or three) - only read,
            there are no such hosts; <!-- needs: torch --> - run by the real suite, where the
            frameworks are; <!-- needs: a cluster --> - for tests/cluster, here only the files are
            looked for that it names. A line of `make` is never run: its target must be there.
```console  What a terminal shows: "$ command", and what it prints. All of a page are run one after
            the other in one folder (terminals.py), and what is shown must be printed;
            <!-- needs: Slurm --> - by tests/conformance/test_slurm_tutorial.py.
```text     Anything else. A command in it, ours or another program's, needs a reason not to be
            run, in a comment above the block: <!-- not run: REASON -->, one of REASONS. Its
            flags must be ours all the same.

A Chinese page has the blocks of the English one, and is not run again; its comments are free.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *sorted(ROOT.glob("README*.md")),
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("README*.md")),
]
# (English, Chinese)
PAIRS = [(p.with_name(p.name.replace(".zh.", ".")), p) for p in PAGES if p.match("*.zh.md")]
ENGLISH = [p for p in PAGES if not p.match("*.zh.md")]

REASONS = {
    "installs packages",
    "needs a cluster you own",
    "needs hosts you own",
    "needs Slurm, MPI or PBS",
    "needs servers that run",
    "needs another program",
    "run by other tests",
    "a pattern, not a command",
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ACTIVATE = "source .venv/bin/activate"  # the tests find the command in any case
ABOVE = re.compile(r"<!-- (not run|needs): (.*) -->\n+\Z")
HOSTS = ("two hosts", "three hosts")
NO_MODULES = (*HOSTS, "a cluster", "Slurm")


@dataclass(frozen=True)
class Block:
    """One fenced block. reason: why its commands are not run; needs: what its comment says."""

    page: Path
    language: str
    body: str
    reason: str
    asked: str

    @property
    def needs(self) -> tuple[str, ...]:
        """Modules of which one must be there; () for none."""
        return () if self.asked in NO_MODULES else tuple(re.findall(r"\b(?!or\b)\w+", self.asked))


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text, found = page.read_text("utf-8"), []
    for match in FENCE.finditer(text):
        above = ABOVE.search(text[: match.start()])
        said = {above[1]: above[2]} if above else {}
        reason, asked = said.get("not run", ""), said.get("needs", "")
        found.append(Block(page, match[1], match[2], reason, asked))
    return found


@dataclass(frozen=True)
class Command:
    """One command line of a page. needs: modules of which one must be there; () for none.

    on_cluster: it is for tests/cluster.
    """

    page: Path
    text: str
    env: dict[str, str]
    words: list[str]
    code: int
    is_run: bool = True
    needs: tuple[str, ...] = ()
    on_cluster: bool = False

    def __str__(self) -> str:
        return f"{self.page.name}: {self.text}"


def commands_of(page: Path) -> list[Command]:
    """The commands of one page's ```bash blocks."""
    return [
        replace(
            command_of(page, line),
            is_run=b.asked not in (*HOSTS, "a cluster"),
            needs=b.needs,
            on_cluster=b.asked == "a cluster",
        )
        for b in blocks_of(page)
        if b.language == "bash" and not b.reason
        for line in b.body.replace("\\\n", " ").splitlines()
        if line.partition("#")[0].strip() not in ("", ACTIVATE)
    ]


def command_of(page: Path, line: str) -> Command:
    """Take a line apart: variables, words, and the exit code its comment promises."""
    words = shlex.split(line, comments=True)
    env = {}
    while "=" in words[0]:
        name, _, text = words.pop(0).partition("=")
        env[name] = text
    code = re.search(r"# exit code (\d+)", line)
    text = line.partition(" # ")[0].strip()
    return Command(page, text, env, words, int(code[1]) if code else 0)


def without_comments(body: str) -> list[str]:
    """The lines of a block, but its comments: what two languages must have in common."""
    lines = [re.sub(r"\s+# .*", "", line) for line in body.splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("#")]
