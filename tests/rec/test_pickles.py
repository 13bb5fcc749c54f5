"""A pickle from elsewhere is data, and never run."""

from __future__ import annotations

import os
import pickle
import random
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.rec.pickles import read_arrays


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_arrays_and_numbers_of_a_state_dict_are_read(tmp_path: Path, protocol: int) -> None:
    """As paddle.save writes them, in its protocols; its table of names is left out."""
    path = tmp_path / "rec.pdparams"
    state: dict[str, Any] = OrderedDict(w=np.arange(6.0).reshape(2, 3), t=("x", np.ones(2)))
    state["LR_Scheduler"] = {"last_epoch": 3, "last_lr": np.float64(0.5)}
    path.write_bytes(pickle.dumps({**state, "StructuredToParameterName@@": {}}, protocol))
    found = read_arrays(str(path))
    assert found["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["t"].tolist() == [1, 1]
    assert found["LR_Scheduler"] == {"last_epoch": 3, "last_lr": 0.5}
    assert len(found) == 3


class Evil:
    """What a pickle can do when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_nothing_of_a_pickle_is_run(tmp_path: Path) -> None:
    """It is refused by the name of what it would have run."""
    path = tmp_path / "rec.pdparams"
    path.write_bytes(pickle.dumps({"w": Evil(tmp_path / "made")}))
    with pytest.raises(UsageError, match=r"it names posix\.mkdir"):
        read_arrays(str(path))
    assert not (tmp_path / "made").exists()


UNREADABLE = {
    "empty": b"",
    "text": b"hello",
    "cut_off": pickle.dumps([1])[:-1],
    "list": pickle.dumps([1]),
    "list_as_key": b"(]K\x01d.",
    "longer_than_memory": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f.",
    "of_objects": pickle.dumps({"w": np.array([{}], object)}),
    "fewer_bytes": pickle.dumps({"w": np.arange(4.0)}, 4).replace(b"K\x04\x85", b"K\x05\x85"),
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_state_dict_is_refused(tmp_path: Path, content: bytes) -> None:
    """With the file's name."""
    path = tmp_path / "rec.pdparams"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"rec\.pdparams"):
        read_arrays(str(path))


def test_damaged_bytes_of_a_pickle_are_refused_or_numbers(tmp_path: Path) -> None:
    """numpy's own unpickling took the flags of a dtype as they stood, and crashed the process."""
    path, rng = tmp_path / "rec.pdparams", random.Random(1)
    good = pickle.dumps({"w": np.arange(12.0).reshape(3, 4), "b": ("n", np.ones(3, "f4"))}, 4)
    read = 0
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        path.write_bytes(bad)
        with suppress(UsageError):
            read += isinstance(read_arrays(str(path)), dict)
    assert read > 20
