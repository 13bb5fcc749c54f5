"""Replays every transcript in scenarios/. ``--record`` writes down what happens now.

Review a recorded change as text: each difference is a promise to users that changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ps.group.replay import replay
from transcript import RULE

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_story_still_happens(path: Path, recording: bool) -> None:
    """What the coordinator does in this story has not changed."""
    wanted = path.read_text("utf-8")
    happened = replay(wanted)
    if recording and happened != wanted:
        path.write_text(happened, "utf-8")
        wanted = happened
    assert happened == wanted


def test_every_story_is_told_first() -> None:
    """A transcript nobody can read without the code is only a snapshot."""
    untold = [p.name for p in FILES if len(p.read_text("utf-8").split(RULE)[0].split("\n\n")) < 2]
    assert untold == []
    assert len(FILES) >= 10


def test_a_changed_story_is_noticed() -> None:
    """Replaying must not simply repeat what it reads."""
    text = "A story.\n\ngroup trainers=1\n----\nok\n\n@0 join 0.1\n----\nwrong\n"
    assert "wrong" not in replay(text)
    assert "JoinAccepted 0.1 after 0" in replay(text)
