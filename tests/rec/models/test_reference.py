"""The page of bundled models is what their files say."""

from __future__ import annotations

from pathlib import Path

from paddock.rec.config.places import World
from paddock.rec.models.reference import markdown

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/models.md"


def test_the_page_of_models_is_what_their_files_say(recording: bool) -> None:
    """A model, a key or a size that was changed is changed there, too."""
    written = markdown(World("/", {}))
    if recording:
        PAGE.write_text(written, "utf-8")
    assert PAGE.read_text("utf-8") == written, "pytest --record tests/rec/models/test_reference.py"


def test_every_bundled_model_has_a_part_with_its_metrics_and_source() -> None:
    """Nobody trains a model that says neither what it is nor how it is judged."""
    written = markdown(World("/", {}))
    parts = written.split("\n## ")[1:]
    assert len(parts) == len(World("/", {}).bundled_names())
    assert [part.partition("\n")[0] for part in parts if "\nSource: " not in part] == []
    rows = [row for row in written.splitlines() if row.startswith("| [")]
    assert [row for row in rows if "|  |" in row] == []
