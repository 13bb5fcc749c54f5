"""A Reading becomes batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.data.formats.criteo import CriteoFormat
from paddock.errors import UsageError
from paddock.rec.learner import WorkerRank
from paddock.rec.readers.source import make_format, make_source
from paddock.rec.settings import Reading


def reading(path: Path, **others: object) -> Reading:
    """Of one directory, batches of 2."""
    return Reading((str(path),), 2, **others)  # type: ignore[arg-type]  # as Reading says


def labels(given: Reading, told: list[str] | None = None) -> list[float]:
    """Those of all batches."""
    warn = (told if told is not None else []).append
    source = make_source(make_format(given, {}), given, WorkerRank(), seed=1, warn=warn)
    return [float(v) for item in source.open(0, None) for v in item.batch.label]


def test_slots_and_csv_and_pipes_are_read(tmp_path: Path) -> None:
    """The declarations of config.yaml are enough."""
    (tmp_path / "a").write_text("click:1 age:2 u:5\nclick:0 u:6\n")
    declared = {"sparse_slots": ("click", "u"), "dense_slots": {"age": 1}}
    assert labels(reading(tmp_path, **declared)) == [1.0, 0.0]
    pipe = "sed 's/.*/1 1 1 5 1 3/'"
    assert labels(reading(tmp_path, pipe_command=pipe, **declared)) == [1.0, 1.0]
    (tmp_path / "a").write_text("u,age,click\n5,1,1\n6,2,0\n")
    assert labels(reading(tmp_path, reader="csv", **declared)) == [1.0, 0.0]
    (tmp_path / "a").write_text("1,5,1\n0,6,2\n")
    assert labels(reading(tmp_path, reader="csv", **declared)) == [1.0, 0.0]


def test_criteo_takes_the_number_of_ids_from_the_model(tmp_path: Path) -> None:
    """An id beyond the table would be an error of the model's."""
    config = {"hyper_parameters.sparse_feature_number": 77}
    assert make_format(reading(tmp_path, reader="criteo"), config) == CriteoFormat(77)


@pytest.mark.limit(60)
def test_a_reader_that_uses_hash_gets_a_process_where_it_is_stable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the user is told."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("1\n")
    reader = tmp_path / "reader.py"
    reader.write_text(
        "class Reader:\n  def generate_sample(self, line):\n"
        "    return lambda: iter([[('y', [hash(line) % 1000])]])\n"
    )
    told: list[str] = []
    given = reading(tmp_path / "data", reader=str(reader), sparse_slots=("y",))
    assert labels(given, told) == labels(given, told)
    assert "PYTHONHASHSEED" in told[0]


def test_an_unknown_reader_is_refused_with_the_nearest(tmp_path: Path) -> None:
    """Exit code 2."""
    with pytest.raises(UsageError, match="no reader 'critoe'") as caught:
        make_format(reading(tmp_path, reader="critoe"), {})
    assert "criteo" in caught.value.hint
