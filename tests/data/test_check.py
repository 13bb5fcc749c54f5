"""`paddock data check` finds what would spoil a training, and says where."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from paddock.data.check import DUPLICATE_LINES, EXACT_MAX, DataReport, IdCounts, check
from paddock.data.files import find_files
from paddock.data.formats.slots import SlotFormat, format_of, slots_of_lines
from paddock.data.generate.write import GenerateRequest, generate

FORM = SlotFormat(("click", "1", "2"), (("d", 2),))
GOOD = "click:{} d:0.5 d:1 1:{} 2:7 2:8\n"


def quiet(done: int, total: int) -> None:
    """Tells nobody."""
    assert done <= total


def checked(directory: Path, form: SlotFormat = FORM, **files: str) -> DataReport:
    """A report on files of these texts."""
    for name, text in files.items():
        (directory / name).write_text(text)
    return check(find_files([directory]), form, 10, 0, quiet)


def rows(count: int, start: int = 0) -> str:
    """Good lines that differ."""
    return "".join(GOOD.format(i % 2, i) for i in range(start, start + count))


def test_good_data_has_nothing_wrong(tmp_path: Path) -> None:
    """Examples, samples, coverage, ids and labels are what the lines say."""
    report = checked(tmp_path, a=rows(6, 1), b=rows(4, 100))
    assert (report.wrong, report.warnings) == ([], [])
    assert [file.examples for file in report.files] == [6, 4]
    assert len(report.samples) == 10
    assert report.samples[0][1] == "label 1, 1 1, 2 [7 8], d [0.5 1]"
    assert report.ids["1"].distinct() == 10
    assert report.ids["2"].top(1) == [(7, 0.5)]
    assert dict(report.labels) == {0.0: 5, 1.0: 5}
    assert (report.dense["d"].low, report.dense["d"].high) == (0.5, 1.0)


def test_bad_lines_are_named_by_file_and_line(tmp_path: Path) -> None:
    """Lines are counted over blocks, from 1, as editors do."""
    first = rows(3) + "click:0 1:x\n" + rows(2, 9)
    report = checked(tmp_path, a=first, b="nonsense\n" + rows(3, 30))
    assert [(Path(path).name, line) for path, line, _ in report.bad] == [("a", 4), ("b", 1)]
    assert report.bad_count == 2
    assert "a:4" in report.wrong[0]


def test_other_labels_are_wrong(tmp_path: Path) -> None:
    """A label of 2 or -1 would train without an error."""
    report = checked(tmp_path, a=rows(4) + "click:2 1:3\nclick:-1 1:3\n")
    assert report.wrong == ["2 labels are neither 0 nor 1: -1 (1), 2 (1)"]


def test_labels_that_are_all_equal_are_told(tmp_path: Path) -> None:
    """Nothing can be learnt from them; it may be meant."""
    assert checked(tmp_path, a="click:0 d:1 d:1 1:3 2:1\n" * 3).warnings == ["all labels are 0"]


def test_a_declared_slot_that_never_occurs_is_wrong(tmp_path: Path) -> None:
    """PaddleRec's own sample trained on zeros: the data says dense_feature, the file dense_var."""
    form = SlotFormat(("click", "1", "2"), (("dense_d", 2),))
    report = checked(tmp_path, form, a=rows(3).replace("d:", "dense_e:"))
    assert len(report.wrong) == 1
    assert "'dense_d' is declared and in none of 3 examples" in report.wrong[0]
    assert "'dense_e'" in report.wrong[0]
    assert "'dense_e' is in the data and not declared" in report.warnings[0]


def test_an_absent_slot_is_not_counted_as_its_padding(tmp_path: Path) -> None:
    """Half of the examples have slot 1: its lowest id is not the padding's 0."""
    report = checked(tmp_path, a="click:0 d:1 d:1 1:5 2:3\nclick:1 d:1 d:1 2:4\n")
    assert report.ids["1"].low == 5
    assert report.coverage.seen["1"] == 1


def test_empty_and_uneven_files_are_told(tmp_path: Path) -> None:
    """A worker with an empty file has nothing to do; one with much more is waited for."""
    report = checked(tmp_path, a=rows(20), b=rows(2, 50), c="")
    assert [line.rpartition("/")[2] for line in report.wrong] == ["c has no example"]
    assert "files are uneven" in report.warnings[0]


def test_the_same_lines_in_two_files_are_told(tmp_path: Path) -> None:
    """A file that was copied is trained twice."""
    report = checked(tmp_path, a=rows(5), b=rows(5), c=rows(5, 4))
    assert "b has the same bytes as" in report.wrong[0]
    assert report.warnings == ["6 lines (40.0%) stand in another file, too"]
    assert DUPLICATE_LINES > 15


def test_a_manifest_is_verified(tmp_path: Path) -> None:
    """Changed, cut off, lost and added files are each told."""
    out = tmp_path / "c"
    generate(GenerateRequest("criteo", out, 40, files=4, vocab=9), quiet)
    first, second, third, _ = sorted(out.glob("part-*"))
    text = first.read_bytes()
    first.write_bytes(text.replace(b"dense_feature:0.1", b"dense_feature:0.2"))
    second.write_bytes(second.read_bytes()[:-1])
    third.unlink()
    (out / "part-9").write_bytes(text)
    slots = slots_of_lines(text)
    report = check(find_files([out]), SlotFormat(slots.sparse, slots.dense), 0, 0, quiet)
    told = "\n".join(report.wrong)
    assert "part-00000.txt has other content" in told
    assert "the manifest says" in told
    assert "part-00002.txt is in the manifest and missing" in told
    assert any("part-9 is not in the manifest" in line for line in report.warnings)


def test_many_ids_are_counted_about_right() -> None:
    """Beyond the limit the number of different ids is an estimate; the frequent are still known."""
    counts = IdCounts()
    rng = np.random.default_rng(1)
    for part in range(10):
        counts.add(np.concatenate([np.arange(50_000) + part * 50_000, np.full(9000, 7)]))
        counts.add(rng.integers(0, 100, 10))
    assert not counts.is_exact
    assert counts.distinct() == pytest.approx(500_000, rel=0.06)
    ((most, share),) = counts.top(1)
    assert most == 7
    assert share == pytest.approx(9000 / 59010, rel=0.01)
    assert (counts.low, counts.high) == (0, 499_999)


def test_few_ids_are_counted_exactly() -> None:
    """Negative ids, too: a hash may be signed."""
    counts = IdCounts()
    counts.add(np.array([-5, 3, 3]))
    counts.add(np.array([], np.int64))
    assert (counts.distinct(), counts.low, counts.high, counts.total) == (2, -5, 3, 3)
    assert EXACT_MAX > 2


@pytest.mark.parametrize(
    ("text", "slots"),
    [
        (b"click:0 1:7\n", SlotFormat(("click", "1"), label="click")),
        (b"1:7 2:9 label:1\n", SlotFormat(("label", "1", "2"), label="label")),
        (b"y:1 1:7\ny:0 1:8\n", SlotFormat(("y", "1"), label="y")),
        (b"a:17 b:8\n", SlotFormat(("a", "b"), label="")),
        (b"click:1 d:0.5 d:1 1:-3\n", SlotFormat(("click", "1"), (("d", 2),), label="click")),
        (b"\n", SlotFormat((), label="")),
    ],
)
def test_slots_are_seen_in_the_lines(text: bytes, slots: SlotFormat) -> None:
    """No flag is needed to look at data."""
    assert slots_of_lines(text) == slots


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b"\n1" + b"\t3" * 39 + b"\n", "criteo"),
        (b"click:1 d:0.5\n", "slots"),
        (b"1,2,3\n", "csv"),
        (b"w1 w2\n", "csv"),
        (b"", "slots"),
    ],
)
def test_the_format_is_seen_in_the_first_line(line: bytes, name: str) -> None:
    """What the first line with something in it looks like."""
    assert format_of(line) == name


def test_json_of_a_report_can_be_written() -> None:
    """numpy's numbers and infinities are no JSON."""
    from paddock.cli.data_text import report_json, report_text

    empty = DataReport()
    assert json.loads(json.dumps(report_json("slots", empty)))["examples"] == 0
    assert "nothing is wrong" in report_text("slots", empty)
