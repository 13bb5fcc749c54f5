"""Every numbered file goes to one node, by its number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.backends.files.data import deal, number_of, shares, unevenness
from paddock.backends.node.manifest import PackageEntry, PackageManifest, make_manifest
from paddock.errors import UsageError


def package(*sizes: int) -> PackageManifest:
    """A script, a dictionary and so many shards of those sizes."""
    shards = [
        PackageEntry(f"data/train.txt-{number:05d}", "file", 0o644, size, f"{number:064x}")
        for number, size in enumerate(sizes)
    ]
    rest = [
        PackageEntry("data", "dir", 0o755),
        PackageEntry("data/words", "file", 0o644, 7, "e" * 64),
    ]
    return make_manifest([*shards, *rest, PackageEntry("train.py", "file", 0o644, 9, "f" * 64)])


def messages(paths: list[str], nnodes: int) -> list[str]:
    """What is said against dealing those."""
    with pytest.raises(UsageError) as caught:
        deal(paths, nnodes)
    return [problem.message for problem in caught.value.problems]


@given(st.integers(1, 9), st.integers(0, 30))
def test_every_file_is_somewhere_once_and_numbers_tell_where(nnodes: int, more: int) -> None:
    paths = [f"train.txt-{number:05d}" for number in range(nnodes + more)]
    dealt = deal(paths, nnodes)
    assert sorted(path for share in dealt for path in share) == paths
    assert all(int(p[-5:]) % nnodes == node for node, share in enumerate(dealt) for p in share)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("train.txt-00000", 0), ("d/train.txt-00012", 12), ("part_3.csv.gz", 3), ("7", 7),
        ("a-00001-of-00004", 1), ("a-00001-of-00004.parquet", 1), ("x.10", 10), ("5.txt", 5),
        ("训练-2", 2), ("a-1-2", 2), ("2024-05-x.txt-3", 3),
        ("data.h5", None), ("clip.mp4", None), ("d-1/words", None), ("a1", None), ("-", None),
        ("a-1-", None), ("a-１", None),
    ],
)  # fmt: skip
def test_the_number_is_at_the_end_of_the_name_or_before_its_format(
    name: str, number: int | None
) -> None:
    assert number_of(name) == number


def test_files_without_a_number_and_numbers_that_are_there_twice_are_all_named() -> None:
    assert messages(["d/train-0", "d/test-0", "d/train-1", "d/words"], 2) == [
        "--data: d/words has no number at its end",
        "--data: number 0 is there 2 times: d/test-0; d/train-0",
    ]


def test_a_node_without_data_is_refused() -> None:
    assert messages(["t-0", "t-1"], 4) == [
        "--data: 2 files for 4 nodes, by number modulo 4: node 2, 3 would get none"
    ]
    assert "node 1 would get none" in messages(["t-0", "t-2", "t-4"], 2)[0]


def test_a_share_is_the_package_without_the_files_of_others() -> None:
    said: list[str] = []
    first, second = shares(package(10, 10, 10, 10), "data/train.txt-*", 2, said.append)
    assert [e.path for e in first.entries] == [
        "data", "data/train.txt-00000", "data/train.txt-00002", "data/words", "train.py",
    ]  # fmt: skip
    assert [e.path for e in second.entries if "train.txt" in e.path] == [
        "data/train.txt-00001", "data/train.txt-00003",
    ]  # fmt: skip
    assert {*first.entries, *second.entries} == {*package(10, 10, 10, 10).entries}
    assert not said


def test_uneven_shares_are_told_with_their_sizes() -> None:
    said: list[str] = []
    shares(package(1000, 1000, 200), "data/train.txt-*", 2, said.append)
    assert said == [
        "warning: --data is uneven: node 0 gets 1.2 KiB, node 1 1000 B; nodes that train in step"
        " wait for the largest"
    ]
    assert not unevenness([1100, 1000])
    assert "node 2 gets 2.0 KiB, node 1 0 B" in unevenness([1024, 0, 2048])


def test_a_pattern_that_means_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="means no file"):
        shares(package(1), "train.txt-*", 1, print)
