"""`paddock data` as it is typed: what it prints, and its exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from paddock.cli.main import run

if TYPE_CHECKING:
    from pathlib import Path


READER = """
from paddlerec.core.reader import ReaderBase

class TrainReader(ReaderBase):
    def init(self):
        pass

    def generate_sample(self, line):
        def each():
            click, item = line.split()
            yield [("click", [int(click)]), ("item", [int(item)])]
        return each
"""


def said(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    """What a command prints, with both streams after one another."""
    assert run(["data", *map(str, words)]) == code
    streams = capsys.readouterr()
    return streams.out + streams.err


def test_generate_prints_the_best_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figure that a model is measured by stands on the screen and in the manifest."""
    text = said(
        capsys, "generate", "criteo", "--out", tmp_path / "c", "--examples", 2000, "--files", 2
    )
    known = json.loads((tmp_path / "c" / "manifest.json").read_text())
    assert f"bayes_auc: {known['bayes_auc']}" in text
    assert text.startswith("2 files, 2,000 examples, ")


def test_plan_prints_who_reads_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One row a worker, JSON for programs."""
    for number in range(3):
        (tmp_path / f"part-{number}").write_bytes(b"1\n" * (number + 1))
    text = said(capsys, "plan", tmp_path, "--workers", 2, "--by", "size")
    assert text.splitlines()[1].split() == ["0", "1", "6", "part-2"]
    known = json.loads(said(capsys, "plan", tmp_path, "--workers", 3, "--json"))
    assert [len(worker["files"]) for worker in known["workers"]] == [1, 1, 1]


def test_more_workers_than_files_is_bad_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and what to type instead."""
    (tmp_path / "part-0").write_bytes(b"1\n")
    text = said(capsys, "plan", tmp_path, "--workers", 2, code=2)
    assert "1 file for 2 workers" in text
    assert "--repeat" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["splt"], "did you mean"),
        (["plan"], "PATH is not given"),
        (["plan", "no-such", "--workers", "1"], "'no-such' does not exist"),
        (
            ["generate", "movies", "--out", "x", "--examples", "1"],
            "'movies' is not one of",
        ),
    ],
)
def test_bad_words_are_bad_use(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """Exit code 2 and a hint."""
    assert message in said(capsys, *words, code=2)


def test_split_by_key_is_typed_as_two_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--by key COLUMN`; shards stand beside the file unless --out says where."""
    (tmp_path / "train.txt").write_bytes(b"a 1\nb 2\na 3\n")
    text = said(capsys, "split", tmp_path / "train.txt", "--count", 2, "--by", "key", 1)
    assert text.startswith("2 files, 3 lines, 12 B: ")
    assert "key: 1" in text
    assert (tmp_path / "train.txt-shards" / "train.txt-00001").exists()
    (tmp_path / "clicks").mkdir()
    (tmp_path / "clicks" / "part-0.txt").write_text("a 1\nb 2\n")
    assert "clicks-shards" in said(capsys, "split", f"{tmp_path}/clicks/", "--count", 2)
    assert "needs a column" in said(
        capsys, "split", tmp_path / "train.txt", "--count", 2, "--by", "key", code=2
    )


def test_check_ends_with_1_when_something_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script that checks before it trains stops here; people see file and line."""
    (tmp_path / "a").write_text("click:0 1:7\nclick:3 1:8\n")
    text = said(capsys, "check", tmp_path, code=1)
    assert "label 0, 1 7" in text
    assert "wrong: 1 labels are neither 0 nor 1: 3 (1)" in text
    known = json.loads(said(capsys, "check", tmp_path, "--json", code=1))
    assert known["labels"] == {"0": 1, "3": 1}


def test_generated_data_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What we write ourselves has nothing wrong, with both forms of Criteo."""
    for form in ("slots", "tsv"):
        words = ("--out", tmp_path / form, "--examples", 300, "--files", 2, "--format", form)
        said(capsys, "generate", "criteo", *words)
        assert "nothing is wrong" in said(capsys, "check", tmp_path / form, "--workers", 2)


def test_check_takes_slots_from_a_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file that training will use; a slot that it misspells is wrong."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("click:0 7:1\nclick:1 7:2\n")
    (tmp_path / "model.py").write_text("class Model: ...\n")
    (tmp_path / "config.yaml").write_text(
        "runner: {train_data_dir: nowhere, train_reader_path: slots, train_batch_size: 4, "
        "sparse_slots: click 8}\n"
    )
    words = ("check", tmp_path / "data", "--config", tmp_path / "config.yaml")
    assert "slot '8' is declared and in none" in said(capsys, *words, code=1)
    assert "slots" in said(capsys, *words[:3], "paddlerec.models.rank.dnn", code=1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", "2"], "1 file for 2 workers"),
        (["--format", "avro"], "no format 'avro'"),
        (["--config", "no.yaml"], "no.yaml"),
        (["--dense-slots", "d:x"], "'d:x' is not name:width"),
    ],
)
def test_what_cannot_be_checked_is_bad_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """Exit code 2, apart from 1 for bad data."""
    (tmp_path / "a").write_text("click:0 1:7\n")
    assert message in said(capsys, "check", tmp_path, *words, code=2)


def test_an_empty_file_is_bad_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not bad use: the command was right."""
    (tmp_path / "a").touch()
    assert "a has no example" in said(capsys, "check", tmp_path / "a", code=1)


def test_text_of_no_known_form_is_bad_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is shown, so that one sees why."""
    (tmp_path / "a").write_text("once upon a time\n")
    text = said(capsys, "check", tmp_path, code=2)
    assert "a: neither slot text nor Criteo's: 'once upon a time'" in text


def test_tables_are_checked_by_their_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CSV with a header and Parquet, by the columns that are declared."""
    (tmp_path / "a.csv").write_text("click,age,item\n1,31.5,7\n0,2,8\n")
    slots = ("--sparse-slots", "click item", "--dense-slots", "age:1")
    text = said(capsys, "check", tmp_path / "a.csv", *slots)
    assert "2 examples" in text
    assert "format csv" in text
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is optional")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is optional")
    table = arrow.table({"click": [1, 0, 3], "age": [1.5, 2, 3], "item": [7, 8, 9]})
    parquet.write_table(table, tmp_path / "a.parquet")
    text = said(capsys, "check", tmp_path / "a.parquet", *slots, code=1)
    assert "3 examples" in text
    assert "1 labels are neither 0 nor 1" in text


def test_a_users_reader_is_tried_on_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What reader_debug_mode was for: the first examples as one's own reader makes them."""
    (tmp_path / "reader.py").write_text(READER)
    (tmp_path / "a").write_text("1 7\n0 8\n")
    words = ("--format", tmp_path / "reader.py", "--sparse-slots", "click item")
    assert "label 1, item 7" in said(capsys, "check", tmp_path / "a", *words)
