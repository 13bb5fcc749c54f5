"""Users' readers run as they are: three generations of PaddleRec, and filters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paddock.data.batch import Bag, Batch, join
from paddock.data.chunks import Chunk
from paddock.data.formats.samples import SampleSlots
from paddock.errors import PaddockError, UsageError
from paddock.rec.readers.paddlerec import LegacyFormat
from paddock.rec.readers.pipe import PipeFormat
from paddock.rec.readers.source import ChunkSource
from paddock.rec.settings import Reading

V01 = """
from paddlerec.core.reader import Reader
from paddlerec.core.utils import envs

class TrainReader(Reader):
    def init(self):
        self.size = envs.get_global_env("size", None, "hyper_parameters")

    def generate_sample(self, line):
        def reader():
            label, *ids = line.split()
            yield ("click", [int(label)]), ("ids", [int(i) % self.size for i in ids]), ("x", [0.5])
        return reader
"""
V18 = """
from __future__ import print_function
from paddlerec.core.reader import ReaderBase

class Reader(ReaderBase):
    def __init__(self, config):
        ReaderBase.__init__(self, config)
        self.path = config

    def init(self):
        assert self.path == "config.yaml"

    def generate_sample(self, line):
        def reader():
            label, *ids = line.split()
            yield zip(["click", "ids", "x"], [[int(label)], [int(i) % 10 for i in ids], [0.5]])
        return reader
"""
V2 = """
import paddle.fluid.incubate.data_generator as dg

class Reader(dg.MultiSlotDataGenerator):
    def init(self, config):
        self.size = config["hyper_parameters.size"]

    def generate_sample(self, line):
        def reader():
            label, *ids = line.split()
            ids = [int(i) % self.size for i in ids]
            yield [("click", [int(label)]), ("ids", ids), ("x", [0.5])]
        return reader

Reader().run_from_stdin()
"""
FLEET = V2.replace("paddle.fluid.incubate.data_generator as dg", "paddle.distributed.fleet as dg")
WHOLE_FILES = """
from paddlerec.core.reader import ReaderBase

class Reader(ReaderBase):
    def init(self):
        pass

    def generate_batch_from_trainfiles(self, files):
        def reader():
            for path in files:
                with open(path) as file:
                    rows = [line.split() for line in file]
                yield [[[int(row[0])], [int(i) % 10 for i in row[1:]], [0.5]] for row in rows]
        return reader
"""
SLOTS = SampleSlots(label="click")
CONFIG = (("hyper_parameters.size", 10),)
NAMES = ("click", "ids", "x")


@pytest.fixture
def data(tmp_path: Path) -> Chunk:
    """Two examples: a label and ids."""
    (tmp_path / "data").write_text("1 5 16\n0 7\n")
    return Chunk(str(tmp_path / "data"), 0, (tmp_path / "data").stat().st_size)


@pytest.fixture
def reader(tmp_path: Path) -> Callable[[str], LegacyFormat]:
    """A format for a reader.py of that text."""

    def write(text: str) -> LegacyFormat:
        path = tmp_path / "reader.py"
        path.write_text(text)
        return LegacyFormat(str(path), None, SLOTS, NAMES, CONFIG, "config.yaml")

    return write


def whole(form: LegacyFormat | PipeFormat, chunk: Chunk) -> Batch:
    """All examples."""
    return join([parsed.batch for parsed in form.read(chunk)])


@pytest.mark.parametrize("text", [V01, V18, V2, FLEET, WHOLE_FILES])
def test_a_reader_of_each_generation_runs_unchanged(
    text: str, data: Chunk, reader: Callable[[str], LegacyFormat]
) -> None:
    """What it imports is gone from Paddle, or never was installed."""
    before = set(sys.modules)
    batch = whole(reader(text), data)
    bag = batch.ids["ids"]
    assert isinstance(bag, Bag)
    assert batch.label.tolist() == [1.0, 0.0]
    assert (bag.values.tolist(), bag.lengths.tolist()) == ([5, 6, 7], [2, 1])
    assert np.array_equal(batch.dense["x"], np.full((2, 1), 0.5, np.float32))
    assert not {name for name in set(sys.modules) - before if name.startswith("paddle.")}


def test_a_reader_that_needs_paddle_gets_it(
    tmp_path: Path,
    data: Chunk,
    reader: Callable[[str], LegacyFormat],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only what Paddle has no more is stood in for."""
    for loaded in [name for name in sys.modules if name.split(".")[0] == "paddle"]:
        monkeypatch.delitem(sys.modules, loaded)
    fleet = tmp_path / "site" / "paddle" / "distributed" / "fleet"
    fleet.mkdir(parents=True)
    for above in (fleet.parent.parent, fleet.parent, fleet):
        (above / "__init__.py").write_text("nn = 'of Paddle'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    text = "import paddle\nassert paddle.nn == 'of Paddle'\n" + V2
    try:
        assert whole(reader(text), data).size == 2
        assert "paddle.fluid" not in sys.modules
    finally:
        for name in ("paddle", "paddle.distributed", "paddle.distributed.fleet"):
            sys.modules.pop(name, None)


def test_a_line_that_the_reader_cannot_take_is_named(
    tmp_path: Path, reader: Callable[[str], LegacyFormat]
) -> None:
    """The user's exception, with file and line, in place of a traceback."""
    (tmp_path / "data").write_text("1 5\nyes 4\n")
    chunk = Chunk(str(tmp_path / "data"), 0, 10)
    source = ChunkSource(reader(V18), [chunk], Reading((), 4))
    with pytest.raises(UsageError, match=r"data:2: Reader\.generate_sample: ValueError"):
        list(source.open(0, None))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class Other: pass\n", "has no class TrainReader or Reader"),
        ("import no_such_module_here\n", "imports what is not here"),
        ("print 'x'\n", r"reader.py:1: "),
    ],
)
def test_a_reader_that_cannot_be_loaded_is_refused(
    text: str, message: str, data: Chunk, reader: Callable[[str], LegacyFormat]
) -> None:
    """Exit code 2, and what is wrong."""
    with pytest.raises(UsageError, match=message):
        whole(reader(text), data)


def test_a_reader_that_does_not_exist_is_refused() -> None:
    """Before anything starts."""
    with pytest.raises(UsageError, match="does not exist"):
        LegacyFormat("/nowhere/reader.py")


def test_use_of_pythons_hash_is_seen(reader: Callable[[str], LegacyFormat]) -> None:
    """Its ids differ between workers unless PYTHONHASHSEED is set."""
    assert reader("x = hash('a')\n").uses_hash
    assert not reader("x = 1  # hash('a')\n").uses_hash


@pytest.mark.limit(60)
def test_a_reading_process_that_dies_is_named_with_its_exit_code(
    data: Chunk, reader: Callable[[str], LegacyFormat]
) -> None:
    """A reader in C that crashes must not look like the end of the data."""
    form = reader(V18.replace("label, *ids", "import os; os._exit(3)\n            label, *ids"))
    with pytest.raises(PaddockError, match="reading process 0 exited 3"):
        list(ChunkSource(form, [data], Reading((), 4, loader_processes=1)).open(0, None))


@pytest.mark.limit(60)
def test_processes_agree_on_pythons_hash(
    data: Chunk, reader: Callable[[str], LegacyFormat], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONHASHSEED is 0 for them where the user set none."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    form = reader(V18.replace("int(i) % 10", "hash('a' + i) % 1000"))
    source = ChunkSource(form, [data], Reading((), 4, loader_processes=1))
    found = [next(source.open(0, None)).batch.ids["ids"].values.tolist() for _ in range(2)]
    assert found[0] == found[1]


# ---------------------------------------------------------------------------------------- pipes

FILTER = """awk '{ printf "1 %d %d", $1, NF - 1; for (i = 2; i <= NF; i++) printf " %d", $i;"""
PIPE = FILTER + """ print " 2 0.5 1" }'"""
DENSE = SampleSlots(frozenset({"x"}), "click")


def test_a_filter_makes_the_examples(data: Chunk) -> None:
    """`n v1 ... vn` for each slot; numbers need not look like ones."""
    batch = whole(PipeFormat(PIPE, NAMES, DENSE), data)
    bag = batch.ids["ids"]
    assert isinstance(bag, Bag)
    assert (batch.label.tolist(), bag.values.tolist()) == ([1.0, 0.0], [5, 16, 7])
    assert batch.dense["x"].tolist() == [[0.5, 1.0], [0.5, 1.0]]


def test_a_filter_that_fails_is_an_error_with_its_last_words(data: Chunk) -> None:
    """QueueDataset went on with what it had."""
    form = PipeFormat("cat >/dev/null; echo oh no >&2; exit 7", NAMES, DENSE)
    with pytest.raises(PaddockError, match=r"(?s)exited 7; it said:\s+oh no") as caught:
        list(form.read(data))
    assert caught.value.exit_code == 7


def test_a_filter_that_reads_little_is_no_failure(tmp_path: Path) -> None:
    """`head` closes its stdin early."""
    path = tmp_path / "data"
    path.write_text("1 2\n" * 200_000)
    form = PipeFormat("head -2 | sed 's/.*/1 1 1 5 1 0.5/'", NAMES, DENSE)
    assert whole(form, Chunk(str(path), 0, 800_000)).size == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 1 5 3", "slot 'ids': no count, or fewer values than it says"),
        ("1 1 1 x 1 0.5", "slot 'ids': 'x' is no value"),
        ("1 1 1 5 1 0.5 9", "1 more fields than 3 slots have"),
    ],
)
def test_a_line_of_a_filter_that_does_not_fit_is_named(data: Chunk, line: str, reason: str) -> None:
    """The slots are not those that are declared."""
    (parsed,) = PipeFormat(f"echo {line}", NAMES, DENSE).read(data)
    assert parsed.bad[0].reason == f"of pipe_command: {reason}"
