"""Shards hold every line once, whatever the rule, and appear all at once or not at all."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.cli.data import run
from paddock.data import split as module
from paddock.data.chunks import Chunk
from paddock.data.files import blocks, find_files
from paddock.data.manifest import file_hash, read_manifest
from paddock.data.split import SplitRequest, key_of, split
from paddock.errors import PaddockError, UsageError
from paddock.ps.xxh3 import xxh3


def quiet(done: int, total: int) -> None:
    """Tells nobody."""
    assert done <= total


def wanted(paths: list[Path], count: int, **facts: object) -> SplitRequest:
    """A split into a directory beside the first file."""
    return SplitRequest(find_files(paths), count, paths[0].parent / "out", **facts)  # type: ignore[arg-type]


def shards(asked: SplitRequest) -> list[bytes]:
    """What the shards hold, after splitting."""
    manifest = split(asked, quiet)
    found = find_files([asked.directory])
    assert [Path(file.path).name for file in found] == [s.name for s in manifest.shards]
    texts = [Path(file.path).read_bytes() for file in found]
    assert [len(text) for text in texts] == [shard.bytes for shard in manifest.shards]
    lines = [text.count(b"\n") + (not text.endswith(b"\n") and bool(text)) for text in texts]
    assert lines == [shard.count for shard in manifest.shards]
    return texts


def written(path: Path, count: int, start: int = 0) -> Path:
    """A file of lines that differ."""
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(start, start + count)))
    return path


@pytest.mark.parametrize("rule", [{}, {"by": "bytes"}, {"by": "key", "key": "1"}, {"seed": 1}])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_a_csv_whose_records_have_several_lines_is_refused(
    tmp_path: Path, ending: str, rule: dict[str, object]
) -> None:
    """They would be cut in two; every such file is named, with its line, and nothing is written."""
    text = b'id,text,label\n0,"a, ""b""",1\n1,"two\nlines",5\n2,x,1\n'
    paths = [tmp_path / f"{name}.{ending}" for name in "abc"]
    for path, content in zip(paths, (text, b'0,5" nail,1\n1,c,0\n', text), strict=True):
        path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    with pytest.raises(UsageError) as caught:
        split(wanted(paths, 2, **rule), quiet)
    told = [problem.message for problem in caught.value.problems]
    record = "line 3 ends within a quoted field: a record of several lines would be cut in two"
    assert told == [f"{paths[0]}: {record}", f"{paths[2]}: {record}"]
    assert not (tmp_path / "out").exists()
    texts = shards(wanted([paths[1]], 2))
    assert b"".join(texts) == b'0,5" nail,1\n1,c,0\n'


def test_a_quoted_field_behind_a_mark_of_utf8_is_seen(tmp_path: Path) -> None:
    """Excel begins its files so."""
    (tmp_path / "a.csv").write_text('"two\nlines",1\nb,2\n', encoding="utf-8-sig")
    with pytest.raises(UsageError, match="line 1 ends within a quoted field"):
        split(wanted([tmp_path / "a.csv"], 2), quiet)


LINES = b"".join(b"%d,x\n" % number for number in range(3000))
NO_TEXT = {
    "a.GZ": (gzip.compress(LINES), "gzip data"),
    "b.csv": (gzip.compress(LINES), "gzip data"),
    "c.csv.gz": (gzip.compress(gzip.compress(LINES)), "gzip data"),
    "d.csv.bz2": (bz2.compress(LINES), "bzip2 data"),
    "e.xz": (lzma.compress(LINES), "xz data"),
    "f.zst": (b"\x28\xb5\x2f\xfd" + LINES, "Zstandard data"),
    "g.zip": (b"PK\x03\x04" + LINES, "a ZIP archive"),
    "h.txt": (LINES.decode().encode("utf-16"), "UTF-16 or UTF-32"),
    "i.txt": (LINES.decode().encode("utf-32"), "UTF-16 or UTF-32"),
    "j.data": (b"PAR1" + LINES, "Parquet"),
}


def test_what_is_no_text_is_named_and_not_cut(tmp_path: Path) -> None:
    """Newlines are in packed data, too; shards of it could be read by nobody."""
    paths = [tmp_path / name for name in NO_TEXT]
    for path, (content, _) in zip(paths, NO_TEXT.values(), strict=True):
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        split(wanted(paths, 2), quiet)
    told = [problem.message for problem in caught.value.problems]
    kinds = [kind for _, kind in NO_TEXT.values()]
    assert told == [
        f"'{path}' is {kind}, and no lines of text" for path, kind in zip(paths, kinds, strict=True)
    ]
    assert not (tmp_path / "out").exists()
    with pytest.raises(PaddockError, match="bzip2 data"):
        list(blocks(Chunk(str(tmp_path / "d.csv.bz2"))))


def test_lines_are_cut_in_order(tmp_path: Path) -> None:
    """Consecutive lines, the first shards have one more; names have five digits."""
    path = written(tmp_path / "train.txt", 8)
    texts = shards(wanted([path], 3))
    assert b"".join(texts) == path.read_bytes()
    assert [text.count(b"\n") for text in texts] == [3, 3, 2]
    assert (tmp_path / "out" / "train.txt-00002").exists()


def test_legacy_lines_are_those_of_prepare_py(tmp_path: Path) -> None:
    """total/count + 1 lines each; on tiny data there are fewer files than asked for."""
    texts = shards(wanted([written(tmp_path / "train.txt", 6)], 4, is_legacy=True))
    assert [text.count(b"\n") for text in texts] == [2, 2, 2]


def test_a_file_without_a_last_newline_does_not_run_into_the_next(tmp_path: Path) -> None:
    """Two files, cut as one."""
    (tmp_path / "a").write_bytes(b"1\n2")
    (tmp_path / "b").write_bytes(b"3\n4")
    assert shards(wanted([tmp_path / "a", tmp_path / "b"], 1)) == [b"1\n2\n3\n4"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    files=st.lists(
        st.lists(st.binary(max_size=6).map(lambda b: b.replace(b"\n", b"")), max_size=9),
        min_size=1,
        max_size=3,
    ),
    has_end=st.booleans(),
    count=st.integers(1, 5),
    rule=st.sampled_from(["lines", "bytes", "rows", "seed", "legacy"]),
    block=st.integers(1, 9),
)
def test_no_rule_loses_or_doubles_a_line(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    files: list[list[bytes]],
    has_end: bool,
    count: int,
    rule: str,
    block: int,
) -> None:
    """Any lines, files, blocks: the shards have each line once, in order but for --seed."""
    monkeypatch.setattr(module, "BLOCK", block)
    monkeypatch.setattr(module, "BUCKET_BYTES", 10)
    monkeypatch.setattr(module, "HELD_BYTES", 8)
    directory = tmp_path_factory.mktemp("split")
    expected: list[bytes] = []
    paths = []
    for number, lines in enumerate(files):
        text = b"\n".join(lines)
        text += b"\n" if text and has_end else b""
        paths.append(directory / f"f{number}")
        paths[-1].write_bytes(text)
        expected += text.removesuffix(b"\n").split(b"\n") if text else []
    facts: dict[str, object] = {"by": rule}
    if rule in ("seed", "legacy"):
        facts = {"seed": 3} if rule == "seed" else {"is_legacy": True}
    try:
        texts = shards(wanted(paths, count, **facts))
    except UsageError as error:
        assert "empty" in error.message or "no lines" in error.message
        assert sorted(path.name for path in directory.iterdir()) == [p.name for p in paths]
        return
    found = [line for text in texts for line in text.removesuffix(b"\n").split(b"\n")]
    if rule == "seed":
        assert Counter(found) == Counter(expected)
    else:
        assert found == expected


@pytest.mark.parametrize("facts", [
    {}, {"by": "bytes"}, {"by": "key", "key": "user"}, {"by": "key", "key": "2"}, {"seed": 3},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_every_shard_of_csv_begins_with_its_header(
    name: str, facts: dict[str, object], tmp_path: Path
) -> None:
    """It stood in one shard, shuffled into its middle, and the others could not be read."""
    rows = [b"%d,u%d,0.5" % (i % 2, i % 7) for i in range(40)]
    for file, some in ((name, rows[:25]), ("b" + name, rows[25:])):
        text = b"\n".join([b"click,user,age", *some, b""])
        (tmp_path / file).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    texts = shards(wanted([tmp_path / name, tmp_path / f"b{name}"], 3, **facts))
    split_up = [text.splitlines() for text in texts]
    assert [lines[0] for lines in split_up] == [b"click,user,age"] * 3
    assert Counter(line for lines in split_up for line in lines[1:]) == Counter(rows)


def test_a_csv_without_a_header_is_split_as_text(tmp_path: Path) -> None:
    """A first line with a number in it is an example; so is a file with another ending."""
    for name, first in (("a.csv", b"1,ann"), ("b.txt", b"click,user")):
        (tmp_path / name).write_bytes(first + b"\n0,bob\n1,eve\n")
        asked = replace(wanted([tmp_path / name], 3), directory=tmp_path / f"of-{name}")
        assert shards(asked) == [first + b"\n", b"0,bob\n", b"1,eve\n"]


def test_a_seed_gives_an_order_of_its_own(tmp_path: Path) -> None:
    """The same order for the same seed, on every machine; another for another."""
    path = written(tmp_path / "f", 200)
    orders = []
    for number, seed in enumerate((1, 1, 2)):
        asked = SplitRequest(find_files([path]), 2, tmp_path / str(number), seed=seed)
        orders.append(b"".join(shards(asked)))
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != path.read_bytes()


def test_a_key_keeps_its_lines_together(tmp_path: Path) -> None:
    """A user's lines are in one shard, which a stable hash says, in their order."""
    path = tmp_path / "f"
    path.write_bytes(b"".join(b"%d\tuser%d\n" % (i, i % 7) for i in range(50)))
    texts = shards(wanted([path], 3, by="key", key="2"))
    for number, text in enumerate(texts):
        rows = [line.split(b"\t") for line in text.splitlines()]
        assert all(xxh3(user) % 3 == number for _, user in rows)
        assert [int(i) for i, _ in rows] == sorted(int(i) for i, _ in rows)
    assert sum(text.count(b"\n") for text in texts) == 50


def test_a_line_without_the_key_is_named(tmp_path: Path) -> None:
    """Which file, which line; nothing is written."""
    (tmp_path / "f").write_bytes(b"1,a\n2,b\n3\n")
    with pytest.raises(UsageError, match=r"f:3: no column '2' in '3'"):
        split(wanted([tmp_path / "f"], 2, by="key", key="2"), quiet)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("column", "line", "value"),
    [
        ("1", b"a\tb", b"a"),
        ("2", b"a b\r", b"b"),
        ("3", b"a b", None),
        ("user", b"click:0 user:7 item:9", b"7"),
        ("7:", b"click:0 8:7", None),
    ],
)
def test_a_key_is_a_field_or_a_slot(column: str, line: bytes, value: bytes | None) -> None:
    """Numbers are fields; names, and numbers with ':', are slots."""
    assert key_of(column, line)(line) == value


def test_gzip_is_split_as_text(tmp_path: Path) -> None:
    """The shards are text, and named without .gz."""
    text = b"".join(b"%d\n" % i for i in range(30))
    (tmp_path / "f.txt.gz").write_bytes(gzip.compress(text))
    assert b"".join(shards(wanted([tmp_path / "f.txt.gz"], 4))) == text
    assert (tmp_path / "out" / "f.txt-00003").exists()
    for number, facts in enumerate(({"seed": 1}, {"by": "key", "key": "1"})):
        asked = SplitRequest(
            find_files([tmp_path / "f.txt.gz"]),
            2,
            tmp_path / f"more{number}",
            **facts,  # type: ignore[arg-type]
        )
        assert sorted(b"".join(shards(asked)).split()) == sorted(text.split())


@pytest.mark.parametrize(
    ("lines", "facts", "message"),
    [
        (2, {}, "2 lines for 3 shards"),
        (2, {"seed": 1}, "2 lines for 3 shards"),
        (1, {"by": "bytes"}, "some shards would be empty"),
        (9, {"count": 0}, "--count is 0"),
        (9, {"by": "key"}, "needs a column"),
        (9, {"seed": 1, "by": "bytes"}, "--seed shuffles lines"),
        (9, {"is_legacy": True, "by": "bytes"}, "--legacy is for"),
        (9, {"name": "a/b"}, "--name"),
    ],
)
def test_what_cannot_be_split_is_refused(
    tmp_path: Path, lines: int, facts: dict[str, object], message: str
) -> None:
    """Exit code 2, nothing left behind."""
    path = written(tmp_path / "f", lines)
    with pytest.raises(UsageError, match=message):
        split(wanted([path], **{"count": 3, **facts}), quiet)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC in the middle: the error says so, no shard stands under its name."""

    def full(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = written(tmp_path / "f", 9)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "other").write_bytes(b"")
    monkeypatch.setattr(os, "sendfile", full)
    with pytest.raises(PaddockError, match="No space left on device"):
        split(wanted([path], 3), quiet)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["other"]


KILLED = """
import os, signal, sys
from pathlib import Path
from paddock.data.chunks import Chunk
from paddock.data.files import blocks, find_files
from paddock.data.split import SplitRequest, split

def end(done, total):
    os.kill(os.getpid(), signal.SIGKILL)

split(SplitRequest(find_files([sys.argv[1]]), 3, Path(sys.argv[2])), end)
"""


def test_a_killed_split_leaves_nothing_under_the_names(tmp_path: Path) -> None:
    """kill -9 midway: no shard, no directory; the next split removes what is hidden."""
    path = written(tmp_path / "f", 9)
    words = [sys.executable, "-c", KILLED, str(path), str(tmp_path / "out")]
    done = subprocess.run(words, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert len(list(tmp_path.glob(".out-*"))) == 1
    assert b"".join(shards(wanted([path], 3))) == path.read_bytes()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["f", "out"]


def test_the_manifest_tells_what_was_split(tmp_path: Path) -> None:
    """Lines, bytes and a checksum of each shard that other programs can verify."""
    path = written(tmp_path / "f", 10)
    split(wanted([path], 2, by="bytes"), quiet)
    manifest = read_manifest(tmp_path / "out")
    assert manifest is not None
    assert manifest.unit == "lines"
    assert manifest.facts["of"] == [{"path": str(path), "bytes": path.stat().st_size}]
    for shard in manifest.shards:
        assert shard.xxh3 == file_hash(tmp_path / "out" / shard.name)
        assert shard.xxh3 == f"{xxh3((tmp_path / 'out' / shard.name).read_bytes()):016x}"


def test_shards_are_never_written_over(tmp_path: Path) -> None:
    """A second split into the same directory is refused before it reads anything."""
    path = written(tmp_path / "f", 10)
    split(wanted([path], 2), quiet)
    with pytest.raises(UsageError, match=r"already there: .*f-00000' and 2 more"):
        split(wanted([path], 2), quiet)


@pytest.mark.parametrize(
    ("facts", "rows"),
    [({}, [50, 50]), ({"by": "rows", "count": 3}, [34, 33, 33]), ({"by": "key", "key": "k"}, None)],
)
def test_parquet_is_split(tmp_path: Path, facts: dict[str, object], rows: list[int] | None) -> None:
    """By whole row groups, by rows, or by a column; each row once."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is optional")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is optional")
    path = tmp_path / "f.parquet"
    columns = {"x": list(range(100)), "k": [i % 9 for i in range(100)]}
    parquet.write_table(arrow.table(columns), path, row_group_size=25)
    manifest = split(wanted([path], **{"count": 2, **facts}), quiet)  # type: ignore[arg-type]
    tables = [parquet.read_table(file.path) for file in find_files([tmp_path / "out"])]
    assert sorted(x for table in tables for x in table["x"].to_pylist()) == columns["x"]
    assert [shard.count for shard in manifest.shards] == [len(table) for table in tables]
    if rows is not None:
        assert [len(table) for table in tables] == rows
    else:
        keys = [set(table["k"].to_pylist()) for table in tables]
        assert not keys[0] & keys[1]


def test_parquet_that_cannot_be_split_is_refused(tmp_path: Path) -> None:
    """Too few row groups, no such column, mixed with text."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is optional")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is optional")
    path = tmp_path / "f.parquet"
    parquet.write_table(arrow.table({"x": [1, 2, 3]}), path)
    text = written(tmp_path / "t.txt", 3)
    for paths, facts, message in (
        ([path], {}, "1 row groups for 2 shards"),
        ([path], {"by": "key", "key": "y"}, "no column 'y'"),
        ([path, text], {}, "is Parquet, others are not"),
        ([path], {"seed": 1}, "for text"),
    ):
        with pytest.raises(UsageError, match=message):
            split(wanted(paths, 2, **facts), quiet)


def test_two_splits_into_one_directory_do_not_mix(tmp_path: Path) -> None:
    """Both said that all was well, and the manifest was of who came last."""
    out = tmp_path / "out"

    def other(done: int, total: int) -> None:
        out.mkdir(exist_ok=True)
        (out / "manifest.json").write_text("of another split")

    with pytest.raises(UsageError, match="already there"):
        split(wanted([written(tmp_path / "a", 10)], 2), other)
    assert [path.name for path in out.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize(
    "words", [["--by", "key", "1:"], ["--by", "key 1:"], ["--by=key 1:"]], ids="|".join
)
def test_a_key_is_written_as_the_help_quotes_it(tmp_path: Path, words: list[str]) -> None:
    """In one word of the shell or in two."""
    (tmp_path / "f").write_text("click:0 1:7\nclick:1 1:8\nclick:0 1:7\n")
    out = tmp_path / "out"
    assert run(["split", str(tmp_path / "f"), "--count", "2", *words, "--out", str(out)]) == 0
    texts = [path.read_text() for path in out.glob("f-*")]
    assert sum("1:7" in text for text in texts) == 1
