"""Event files of TensorBoard and VisualDL: real ones, damaged ones, and one that grows in a run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.watch.events import EventReader
from watched import launched

GOLDEN = Path(__file__).parent / "golden"
FILES = {"tensorboard": "events.out.tfevents.tensorboardX", "visualdl": "vdlrecords.visualdl.log"}

GROWS = """\
import sys, time
data = open(sys.argv[1], "rb").read()
with open("events.out.tfevents.1", "wb", buffering=0) as file:
    for at in range(0, len(data), 100):
        file.write(data[at : at + 100])
        time.sleep(0.5)
"""


def golden(kind: str) -> bytes:
    """A file as its writer has left it; git keeps it as hexadecimal digits."""
    return bytes.fromhex((GOLDEN / f"{FILES[kind]}.hex").read_text())


def read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> EventReader:
    monkeypatch.chdir(folder)
    return EventReader(0.0)


@pytest.mark.parametrize("kind", FILES)
def test_files_of_real_writers_are_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / FILES[kind]).write_bytes(golden(kind))
    reader = read(tmp_path, monkeypatch)
    found = reader.read((os.getpid(),), 0.0)
    assert found is not None
    assert (found.profile, found.step) == (kind, 2)
    assert dict(found.values) == pytest.approx(
        {"train/loss": 1 / 3, "train/lr": 1e-3, "examples/s": 100.0}
    )
    assert reader.read((os.getpid(),), 1.0) is None, "nothing new"


def test_files_of_another_run_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILES["tensorboard"]).write_bytes(golden("tensorboard"))
    monkeypatch.chdir(tmp_path)
    assert EventReader(4e9).read((os.getpid(),), 0.0) is None


@settings(deadline=None)
@given(st.sampled_from([*FILES]), st.lists(st.tuples(st.integers(0, 600), st.binary(max_size=9))))
def test_damage_ends_no_reader(kind: str, cuts: list[tuple[int, bytes]]) -> None:
    data = golden(kind)
    for at, more in cuts:
        data = data[:at] + more + data[at + len(more) + 1 :]
    reader = EventReader(0.0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, FILES[kind])
        path.write_bytes(data)
        with path.open("rb"):  # it is found as a file that a process holds open
            found = reader.read((os.getpid(),), 0.0)
        assert found is None or found.values


def test_a_run_that_prints_nothing_is_seen_by_its_event_file(tmp_path: Path) -> None:
    (tmp_path / "written").write_bytes(golden("tensorboard"))
    with launched(tmp_path, GROWS, "written", flags=("--devices", "cpu")) as run:
        assert run.process.wait(60) == 0
        rows = run.rows("progress")
        assert {row["profile"] for row in rows} == {"tensorboard"}
        assert rows[-1]["step"] == 2
        assert rows[-1]["values"]["train/loss"] == pytest.approx(1 / 3)
