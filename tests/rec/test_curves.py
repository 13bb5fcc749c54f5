"""curves.svg of a training: what is in it, a run that resumes, and a disk that refuses."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from paddock.rec.report import POINTS_MAX, Curves

SVG = "{http://www.w3.org/2000/svg}"


def curves(folder: Path, step: int = 0, said: list[str] | None = None) -> Curves:
    """With a clock that stands."""
    return Curves(str(folder), step, lambda: 0.0, [].append if said is None else said.append)


def drawn(folder: Path) -> dict[str, int]:
    """The curves of the picture, and how many points each has."""
    root = ElementTree.parse(folder / "curves.svg").getroot()
    paths = {path.findtext(f"{SVG}title"): path.get("d", "") for path in root.iter(f"{SVG}path")}
    return {str(name): d.count("M") + d.count("L") for name, d in paths.items()}


def test_each_value_has_a_chart(tmp_path: Path) -> None:
    """With a heading; a value that is no number has no point."""
    made = curves(tmp_path / "saved")
    for step in range(10):
        made.add("train/loss", 1 / (step + 1), step)
        made.add("train/auc", float("nan") if step < 3 else 0.5, step)
    made.write()
    assert drawn(tmp_path / "saved") == {"loss": 10, "auc": 7}
    root = ElementTree.parse(tmp_path / "saved" / "curves.svg").getroot()
    texts = [text.text for text in root.findall(f"{SVG}text")]
    assert texts == ["loss", "auc"]
    assert "script" not in (tmp_path / "saved" / "curves.svg").read_text()


def test_a_run_that_resumes_keeps_the_points_before(tmp_path: Path) -> None:
    """Those that it trains again are gone; a run that begins anew has none of them."""
    made = curves(tmp_path)
    for step in range(1, 9):
        made.add("train/loss", float(step), step)
    made.write()
    again = curves(tmp_path, step=4)
    again.add("train/loss", 50.0, 5)
    again.write()
    found = json.loads((tmp_path / "curves.json").read_text())
    assert found == {"loss": [[1, 1.0], [2, 2.0], [3, 3.0], [4, 4.0], [5, 50.0]]}
    fresh = curves(tmp_path)
    fresh.add("train/loss", 7.0, 1)
    fresh.write()
    assert drawn(tmp_path) == {"loss": 1}


def test_many_points_are_thinned(tmp_path: Path) -> None:
    """The first and the last stay; the file does not grow."""
    made = curves(tmp_path)
    for step in range(10 * POINTS_MAX):
        made.add("train/loss", 1.0, step)
    made.write()
    points = json.loads((tmp_path / "curves.json").read_text())["loss"]
    assert len(points) <= POINTS_MAX
    assert points[0][0] == 0 and points[-1][0] == 10 * POINTS_MAX - 1


def test_a_damaged_file_or_a_full_disk_stops_no_training(tmp_path: Path) -> None:
    """It is said once."""
    (tmp_path / "curves.json").write_text('{"loss": [[1')
    (tmp_path / ".curves.json").mkdir()
    said: list[str] = []
    made = curves(tmp_path, step=5, said=said)
    made.add("train/loss", 1.0, 6)
    made.write()
    made.write()
    assert len(said) == 1 and "curves.svg is not written: Is a directory" in said[0]
