"""The state tables are for people: they match the code (the other tests) and the docs (here)."""

from __future__ import annotations

from pathlib import Path

from core.tables import NOT_PHASES, read_table, write_document
from paddock.agent.leadership import leadership_state
from paddock.core.attempt import supervisor, warming
from paddock.core.rendezvous import membership

PAGE = Path(__file__).resolve().parents[2] / "docs" / "concepts" / "state-machines.md"


def test_the_page_is_made_from_the_tables(recording: bool) -> None:
    """docs/concepts/state-machines.md; run make reference after a change."""
    wanted = write_document()
    if recording:
        PAGE.write_text(wanted, "utf-8")
    assert PAGE.read_text("utf-8") == wanted


def test_every_phase_can_be_reached_and_left() -> None:
    """A phase without a way out would be a job that hangs."""
    for module in (membership, leadership_state, supervisor, warming):
        rows = read_table(module.__doc__)
        phases = {r.phase for r in rows} - set(NOT_PHASES)
        reached = {r.next for r in rows if r.is_move} | {rows[0].phase}
        left = {r.phase for r in rows if r.is_move} - set(NOT_PHASES)
        assert reached == phases
        assert left == phases - {"ended", "barred"}
