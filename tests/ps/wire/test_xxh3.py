"""Checksums with numpy alone are those of the library."""

from __future__ import annotations

import subprocess
import sys

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from paddock.ps.xxh3 import _hash

# Where the algorithm takes another way, and one byte to either side.
EDGES = (0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 1088, 2049, (1 << 20) + 65)
CONTENT = bytes(range(256)) * 4200
SERVES = """\
import sys
sys.modules["xxhash"] = sys.modules["numba"] = None
from paddock.ps.wire.frames import Header, Op, encode
from paddock.ps.xxh3 import xxh3
print(encode(Header(Op.PULL), bytes(5000)).hex(), xxh3(bytes(56), b"x"))
"""


@pytest.mark.parametrize("seed", [0, 1, 63, 2**64 - 1])
def test_each_way_gives_the_bits_of_the_library(seed: int) -> None:
    """Also on either side of each limit."""
    for size in {max(0, edge + by) for edge in EDGES for by in (-1, 0, 1)}:
        data = memoryview(CONTENT)[:size]
        assert _hash(data, seed) == xxhash.xxh3_64_intdigest(data, seed=seed), size


@given(st.binary(max_size=4000), st.integers(0, 2**64 - 1))
def test_any_bytes_give_the_bits_of_the_library(data: bytes, seed: int) -> None:
    """Whatever they are."""
    assert _hash(data, seed) == xxhash.xxh3_64_intdigest(data, seed=seed)


def test_frames_are_the_same_without_the_library() -> None:
    """So a host that has numpy alone speaks with one that has more."""
    with_it, without = (
        subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for text in (SERVES.partition("\n")[0] + SERVES.partition("None")[2], SERVES)
    )
    assert with_it == without
