"""What events.jsonl of a run says: damaged lines are left out, and an end stays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from paddock.local.runs.events import end_of, read_events

if TYPE_CHECKING:
    from pathlib import Path

END = '{"at": 5.0, "state": "failed", "why": "{\\"at\\": 1", "code": 3}'
HALF = '{"at": 4.0, "state": "runn'


def written(folder: Path, text: str) -> Path:
    """The record that has this text."""
    (folder / "events.jsonl").write_bytes(text.encode("utf-8", "surrogateescape"))
    return folder


def end(*seen: tuple[str, float], is_launch: bool) -> str | None:
    """The state in which a run has ended of which this was seen, the latest last."""
    events = [{"state": state, "at": at} for state, at in reversed(seen)]
    found = end_of(events, is_launch=is_launch)
    return None if found is None else str(found["state"])


@pytest.mark.parametrize("text", [
    END, f"{END}\n", f"{HALF}\n{END}\n", f"{HALF}{END}\n", f"{END}\n{HALF}", f"{END}\n\n{HALF}\n",
    f"{END}\n[]\n3\nnull\n\udcff\n{'[' * 100_000}", f'{END}\n{{"at": NaN, "state": "running"}}',
    f'{END}\n{{"state": "running"}}\n{{"at": 9}}',
    f'{END}\n{{"at": 9, "state": "lost", "code": ""}}',
    f'{END}\n{{"at": {"9" * 400}, "state": "running"}}',
])  # fmt: skip
@pytest.mark.parametrize("is_launch", [True, False])
def test_an_end_is_read_among_damaged_lines(tmp_path: Path, text: str, is_launch: bool) -> None:
    """Also where the end follows half a line: its writer was killed, or the disk was full."""
    found = end_of(read_events(written(tmp_path, text)), is_launch=is_launch)
    assert found == json.loads(END)


def test_a_record_without_events_has_no_end(tmp_path: Path) -> None:
    assert end_of(read_events(tmp_path), is_launch=True) is None
    (tmp_path / "events.jsonl").mkdir()
    assert list(read_events(tmp_path)) == []


@pytest.mark.parametrize("later", ["running", "starting", "stopping", "lost", "unknown"])
@pytest.mark.parametrize("at", [4.0, 5.0, 6.0])
def test_a_launch_never_begins_again(later: str, at: float) -> None:
    assert end(("running", 1), ("failed", 5), (later, at), is_launch=True) == "failed"


def test_a_submitted_job_begins_again_when_it_is_seen_after_its_end() -> None:
    """Slurm puts it back into the queue; who asked before the end has nothing to say."""
    seen = (("running", 1), ("failed", 5))
    for state in ("pending", "starting", "running", "stopping"):
        assert end(*seen, (state, 4), is_launch=False) == "failed"
        assert end(*seen, (state, 6), is_launch=False) is None
        assert end(*seen, (state, 6), ("succeeded", 7), is_launch=False) == "succeeded"
        assert end(*seen, (state, 6), ("lost", 7), is_launch=False) == "lost"
    for state in ("lost", "unknown"):
        assert end(*seen, (state, 6), is_launch=False) == "failed"


@pytest.mark.parametrize("is_launch", [True, False])
def test_a_lost_run_is_lost_until_it_is_seen_again(is_launch: bool) -> None:
    assert end(("running", 1), ("lost", 5), is_launch=is_launch) == "lost"
    assert end(("lost", 5), ("running", 6), is_launch=is_launch) is None
    assert end(("lost", 5), ("unknown", 6), is_launch=is_launch) is None
