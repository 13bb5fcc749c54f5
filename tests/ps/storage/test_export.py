"""Exports: what other programs read is what was trained, and what they wrote can be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paddock.errors import PaddockError, UsageError
from paddock.ps.spec import DenseSpec
from paddock.ps.storage import paddle_text
from paddock.ps.storage.export import (
    Tensor,
    read_npz,
    read_safetensors,
    tensors_of,
    weights_of,
    write_npz,
    write_safetensors,
)
from paddock.ps.storage.files import DamageError
from ps.storage.shards import make_job, save

JOB = make_job(4)
KEYS = np.concatenate([JOB["wide", n]["keys"] for n in range(8)])
WEIGHTS = np.concatenate([JOB["wide", n]["values"][:, :3] for n in range(8)])


def tensor(array: NDArray[Any]) -> Tensor:
    """A tensor that is in memory already."""
    return Tensor(array.dtype, array.shape, lambda: iter([array]))


@pytest.mark.parametrize("form", ["npz", "safetensors"])
def test_an_export_holds_keys_and_weights(tmp_path: Path, form: str) -> None:
    """Of sparse tables both in one order, of dense ones the flat vector; no optimizer state."""
    tensors = tensors_of(save(tmp_path / "saved", JOB))
    path = tmp_path / f"out.{form}"
    if form == "npz":
        write_npz(path, tensors)
        found = read_npz(path)
    else:
        write_safetensors(path, tensors, {"job": "ads"})
        found = read_safetensors(path)
    assert sorted(found) == ["deep.weights", "wide.keys", "wide.weights"]
    assert found["wide.keys"].tolist() == KEYS.tolist()
    assert found["wide.weights"].tobytes() == WEIGHTS.tobytes()
    assert found["deep.weights"].shape == (50,) and found["deep.weights"].dtype == np.float32
    assert found["deep.weights"][:6].tolist() == JOB["deep", 0]["values"][0, :6].tolist()
    assert [one.name for one in tmp_path.glob("out*")] == [path.name]


def test_safetensors_is_laid_out_as_documented(tmp_path: Path) -> None:
    """Eight bytes of length, JSON, then the data with offsets that begin at zero."""
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": tensor(np.array([1.5], "<f4")), "b": tensor(np.arange(2))})
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert json.loads(data[8 : 8 + length]) == {
        "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "b": {"dtype": "I64", "shape": [2], "data_offsets": [4, 20]},
    }
    assert data[8 + length :] == np.array([1.5], "<f4").tobytes() + np.arange(2).tobytes()


@given(st.binary(max_size=200), st.integers(0, 300))
@settings(max_examples=60)
def test_bad_safetensors_are_refused_not_trusted(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    """A header from elsewhere may say anything."""
    path = tmp_path_factory.mktemp("x") / "x.safetensors"
    write_safetensors(path, {"a": tensor(np.arange(6).reshape(2, 3))})
    data = path.read_bytes()
    path.write_bytes(data[:at] + junk + data[at + len(junk) :])
    try:
        found = read_safetensors(path)
    except DamageError as error:
        assert str(path) in str(error)
    else:
        assert all(one.nbytes <= len(data) + 200 for one in found.values())


@pytest.mark.parametrize(("at", "value"), [(8, 0xFF), (6, 0x01), (70, 0xFF)])
def test_a_damaged_npz_is_refused(tmp_path: Path, at: int, value: int) -> None:
    """Its method of compression, its flag of encryption, what was compressed."""
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.arange(1000))
    data = bytearray(path.read_bytes())
    directory = data.index(b"PK\x01\x02")
    data[at] = value
    if at < 10:
        data[directory + 2 + at] = value
    path.write_bytes(data)
    with pytest.raises(DamageError, match="not an npz of plain arrays"):
        read_npz(path)


def test_an_npz_with_objects_is_refused(tmp_path: Path) -> None:
    """Reading a model must not run code."""
    path = tmp_path / "x.npz"
    np.savez(path, a=np.array([{}], dtype=object))
    with pytest.raises(DamageError, match="not an npz of plain arrays"):
        read_npz(path)
    with pytest.raises(UsageError, match=r"none.npz cannot be read"):
        read_npz(tmp_path / "none.npz")


@pytest.mark.parametrize("rule", ["naive", "adagrad", "std_adagrad", "adam", "shared_adam"])
def test_paddle_text_round_trips_to_the_bit(tmp_path: Path, rule: str) -> None:
    """Weights and statistics; negative keys and keys above 2**53 among them."""
    columns = paddle_text.columns_of(3, rule)
    shows, clicks = np.random.default_rng(1).random((2, len(KEYS)), np.float32)
    rows = paddle_text.PaddleRows(KEYS, WEIGHTS * np.float32(1e-20), shows, clicks)
    path = tmp_path / paddle_text.part_name(0, 0)
    paddle_text.write_part(path, rows, columns)
    (found,) = paddle_text.read_sparse(tmp_path, columns)
    for one, other in zip(rows, found, strict=True):
        assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes())
    widths = {len(line.split()) for line in gzip.decompress(path.read_bytes()).splitlines()}
    assert widths == {1 + columns.full}


def test_a_line_as_paddle_writes_it_is_read(tmp_path: Path) -> None:
    """Key, five facts, embed and its state, then embedx and its state if the key has them."""
    lines = "18446744073709551615 7 0 0.25 3 1 0.5 3.01 1 2 -3 0.125\n5 7 2 0 1 0 -0.5 3\n"
    with gzip.open(tmp_path / "part-001-00012.gz", "wb") as file:
        file.write(lines.encode())
    (tmp_path / "part-001-00013").write_text("6 0 0 0 0 0 1.5 3\n")
    (tmp_path / "meta").write_text("not a part")
    one, two = paddle_text.read_sparse(tmp_path, paddle_text.columns_of(4, "adagrad"))
    assert one.keys.tolist() == [-1, 5] and two.keys.tolist() == [6]
    assert one.weights.tolist() == [[0.5, 1, 2, -3], [-0.5, 0, 0, 0]]
    assert (one.shows.tolist(), one.clicks.tolist()) == ([3, 1], [1, 0])


def test_bad_text_is_named_by_file_and_line(tmp_path: Path) -> None:
    """The commonest mistake is a wrong dim or rule."""
    path = tmp_path / "part-000-00000"
    columns = paddle_text.columns_of(4, "adagrad")
    path.write_text("1 0 0 0 0 0 1 3\n2 0 0\nx 0 0 0 0 0 1 3\n")
    with pytest.raises(UsageError) as caught:
        paddle_text.read_part(path, columns)
    assert [one.message for one in caught.value.problems] == [
        f"{path}, line 2: 2 columns after the key instead of 7 or 11",
        f"{path}, line 3: b'x' is not a key",
    ]
    path.write_text("1 0 0 0 0 0 1 2 3 4\n")  # Three weights of embedx, no state of a rule.
    with pytest.raises(UsageError) as caught:
        paddle_text.read_part(path, columns)
    assert caught.value.problems[0].hint.endswith("of dim 4, naive have so many")
    path.write_text("1 0 0 0 0 0 what 3\n")
    with pytest.raises(UsageError, match=f"{path} holds what is not a number"):
        paddle_text.read_part(path, columns)
    with pytest.raises(UsageError, match="no sparse rule 'lion'"):
        paddle_text.columns_of(4, "lion")
    with pytest.raises(UsageError, match=r"there is no part-\* in"):
        paddle_text.list_parts(tmp_path / "none")
    packed = tmp_path / "part-000-00001.gz"
    packed.write_bytes(gzip.compress(b"1 0 0 0 0 0 1 3\n" * 50)[:-9])
    with pytest.raises(DamageError, match=f"{packed} is damaged"):
        paddle_text.read_part(packed, columns)


def test_dense_text_gives_the_weights_of_all_parts(tmp_path: Path) -> None:
    """The weight is first; what Paddle's optimizer kept follows on the line."""
    values = np.random.default_rng(2).standard_normal(100).astype(np.float32)
    paddle_text.write_dense(tmp_path / "part-000", values[:60])
    paddle_text.write_dense(tmp_path / "part-001.gz", values[60:])
    assert paddle_text.read_dense(tmp_path).tobytes() == values.tobytes()
    (tmp_path / "part-002").write_text("1 2\n")
    with pytest.raises(UsageError, match=r"lines of 1 columns in .*part-001.gz, of 2 .*part-002"):
        paddle_text.read_dense(tmp_path)
    for name in ("part-000", "part-001.gz"):
        (tmp_path / name).unlink()
    (tmp_path / "part-003").write_text("3 4\n\n")
    assert paddle_text.read_dense(tmp_path).tolist() == [1, 3]


def test_an_export_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    """The path before stays as it was."""
    (tmp_path / "file").write_text("")
    with pytest.raises(PaddockError, match=r"cannot write x.npz in .*file"):
        write_npz(tmp_path / "file" / "x.npz", {"a": tensor(np.arange(3))})


def test_a_dense_table_in_parts_gives_each_part_its_own_weights() -> None:
    """Its shards are not of equal length; behind the weights is the optimizer's state."""
    spec = DenseSpec("deep", 10, parts=(7, 0, 3))
    values = np.arange(14, dtype=np.float32).reshape(1, 14)
    lengths = [len(weights_of(spec, {"values": values}, shard)) for shard in range(2)]
    assert lengths == [7, 3]
