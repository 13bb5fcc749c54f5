"""For the pages of docs/libraries: types the command that restarts, reads what ranks printed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

from pages import ROOT, blocks_of

if TYPE_CHECKING:
    from pathlib import Path

    from real.conftest import Launch, Need

PAGES = ROOT / "docs" / "libraries"
RESULT = re.compile(r"^rank (\d): (loss \d.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Restarted:
    """A job of two ranks of which one was killed once.

    resumed: ranks whose logs have the page's line about the checkpoint. results: by rank, loss and
    weights. wanted: what the page shows, with and without a crash.
    """

    resumed: list[int]
    results: list[list[float]]
    wanted: list[list[float]]

    def is_one_model(self) -> bool:
        """Both ranks have the same numbers, and the page has them, as far as processors differ."""
        same = [*self.results, *self.wanted]
        return len(same) == 4 and all(each == pytest.approx(same[0], rel=1e-3) for each in same)


class RestartOf(Protocol):
    """restart_of("accelerate", ["accelerate"]) -> Restarted."""

    def __call__(self, page: str, modules: list[str]) -> Restarted: ...


@pytest.fixture
def restart_of(
    launch: Launch, need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RestartOf:
    """Type a page's command with --max-restarts; the example's rank 1 kills itself once."""

    def type_it(page: str, modules: list[str]) -> Restarted:
        need(modules=["torch", *modules])
        monkeypatch.setenv("CHECKPOINTS", str(tmp_path / "checkpoints"))
        blocks = [b.body for b in blocks_of(PAGES / f"{page}.md")]
        (at,) = (n for n, body in enumerate(blocks) if "--max-restarts 1 " in body)
        done = launch(*shlex.split(blocks[at])[2:]).end()
        assert done.code == 0 and done.left == [], done.output
        warning, resumes, _ = blocks[at + 1].splitlines()
        assert re.search(re.escape(warning).replace(r"\ vm\ ", r" \S+ "), done.output), done.output
        logs = [done.log(rank) for rank in (0, 1)]
        assert [log.count("of 2 is up\n") for log in logs] == [2, 2], logs  # attempts 0 and 1
        return Restarted(
            [rank for rank in (0, 1) if resumes.replace("rank 0", f"rank {rank}") in logs[rank]],
            [numbers for rank in (0, 1) for numbers in _results(logs[rank], rank)],
            [numbers for body in blocks for numbers in _results(body, 0)],
        )

    return type_it


def _results(text: str, rank: int) -> list[list[float]]:
    """The numbers of the lines in which that rank tells its loss and weights."""
    found = RESULT.findall(text)
    return [[float(n) for n in re.findall(r"[\d.]+", told)] for r, told in found if r == str(rank)]
