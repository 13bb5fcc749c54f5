"""Replays every transcript beside this file. ``PADDOCK_RECORD=1`` writes down what happens now.

Review a recorded change as text: each difference is a promise to users that changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scenarios.replay import replay
from transcript import RULE

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))
# Read once, at import: the fixtures remove PADDOCK_ variables while a test runs.
IS_RECORDING = os.environ.get("PADDOCK_RECORD") == "1"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_transcript_still_happens(path: Path) -> None:
    """What the machines do in this story has not changed."""
    wanted = path.read_text("utf-8")
    happened = replay(wanted)
    if IS_RECORDING and happened != wanted:
        path.write_text(happened, "utf-8")
        return
    assert happened == wanted


def test_every_transcript_tells_its_story_first() -> None:
    """A transcript nobody can read without the code is only a snapshot."""
    untold = [p.name for p in FILES if len(p.read_text("utf-8").split(RULE)[0].split("\n\n")) < 2]
    assert untold == []


def test_a_changed_transcript_is_noticed() -> None:
    """Replaying must not simply repeat what it reads."""
    text = "A story.\n\njob nnodes=1\n----\nok\n\n@0 join 1 a self\n----\nwrong\n"
    happened = replay(text)
    assert "wrong" not in happened
    assert "Start attempt 0: 1=a" in happened
