"""A server short of memory: what it refuses was never logged, and what is logged is applied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps import DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.server.main import finish, make_server
from paddock.ps.server.options import read_options
from paddock.ps.table.memory import machine_bytes
from paddock.ps.wire.errors import RequestError
from ps.client.running import fleet

WORDS = SparseSpec("words", 2, OptimizerSpec("sgd", lr=1.0))


def fails(*_: object, **__: object) -> int:
    """What stands in for a table's push."""
    raise MemoryError("Unable to allocate 1 GiB")


def test_a_push_that_cannot_be_carried_out_is_never_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the log: told no, the trainer would go on, and a restart would apply it."""
    with fleet(1, data=tmp_path) as one, one.client(timeout=5.0) as ps:
        ps.create(WORDS)
        before = ps.pull("words", [7])
        with monkeypatch.context() as patch:
            patch.setattr(one.servers[0].store.by_name["words"].table, "push", fails)
            ps.push("words", [7], np.ones((1, 2)))
            with pytest.raises(PaddockError, match="has not answered") as caught:
                ps.flush()
            assert not isinstance(caught.value, RequestError)
            with pytest.raises(PaddockError, match="has not answered"):
                ps.pull("words", [7])  # What is half applied is shown to nobody.
        with pytest.raises(PaddockError, match="MemoryError") as ended:
            finish(one.servers[0])
        assert ended.value.exit_code != 0
        one.restart(0)
        ps.flush()
        assert np.array_equal(ps.pull("words", [7]), before - 1)


def cgroups(root: Path, version: int, **limits: str) -> Path:
    """A made-up /proc and /sys/fs/cgroup; limits: of each group from the root down."""
    top = root / "sys/fs/cgroup" / ("" if version == 2 else "memory")
    name = "memory.max" if version == 2 else "memory.limit_in_bytes"
    path = top
    for group, text in limits.items():
        path = path / group
        path.mkdir(parents=True)
        (path / name).write_text(text + "\n")
    (root / "proc/self").mkdir(parents=True)
    inside = "/" + "/".join(limits)
    line = f"0::{inside}\n" if version == 2 else f"9:pids:/x\n4:memory,cpu:{inside}\n0::/\n"
    (root / "proc/self/cgroup").write_text(line)
    return root


def test_memory_is_the_containers_not_the_machines(tmp_path: Path) -> None:
    """The smallest limit on the way up counts, in both versions of cgroups."""
    two = cgroups(tmp_path / "two", 2, pod="3000000", box="max")
    one = cgroups(tmp_path / "one", 1, pod="9223372036854771712", box="2000000")
    assert (machine_bytes(two), machine_bytes(one)) == (3000000, 2000000)
    # Inside a container its own group is mounted as the root.
    (tmp_path / "two/proc/self/cgroup").write_text("0::/\n")
    (tmp_path / "two/sys/fs/cgroup/memory.max").write_text("1000000\n")
    assert machine_bytes(tmp_path / "two") == 1000000
    assert machine_bytes(tmp_path / "none") > 1 << 27


def test_without_a_limit_the_tables_leave_room_for_the_process() -> None:
    """Killed for memory, a server would be killed again by the same log."""
    server = make_server(read_options(["--port=0"], {}))
    try:
        assert machine_bytes() // 2 <= server.store.memory_limit_bytes < machine_bytes()
        assert server.status()["memory_limit"] == server.store.memory_limit_bytes
    finally:
        server.stop()


def test_servers_on_one_host_share_its_memory() -> None:
    """Each took 7/8 of it for its own: together they were killed before any refused a row."""
    limits = []
    for others in ("", "127.0.0.1:7|127.0.0.1:8,other:7"):
        endpoints = ",".join(["127.0.0.1:0", others]).strip(",")
        server = make_server(
            read_options([f"--endpoints={endpoints}", "--port=0", "--index=0"], {})
        )
        limits.append(server.store.memory_limit_bytes)
        server.stop()
    assert limits[0] // 4 <= limits[1] <= limits[0] // 3 + 1  # each was rounded down


def test_what_comes_otherwise_counts_against_the_limit_too() -> None:
    """Bytes are not counted at each push; a table made meanwhile is."""
    with fleet(1, "--memory-limit=4M") as one, one.client() as ps:
        ps.create(SparseSpec("words", 64, OptimizerSpec("sgd", lr=1.0)))
        ps.push("words", [1], np.ones((1, 64)))
        ps.flush()
        ps.create(DenseSpec("bias", 800_000, OptimizerSpec("sgd", lr=1.0)))
        keys = np.arange(8000)
        with pytest.raises(RequestError, match="no row can be added to table 'words'"):
            ps.push("words", keys, np.ones((8000, 64)))
            ps.flush()
        ps.push("words", [1], np.ones((1, 64)))
        ps.push("words", np.arange(100), np.ones((100, 64)))
        ps.flush()
        assert ps.status()[0]["rows"] == 100


def test_what_is_replayed_behind_the_last_commit_counts(tmp_path: Path) -> None:
    """Contributions to the open step take memory before the restart and after it."""
    flags = ("--memory-limit=4MB",)
    rows = np.ones((2000, 16), np.float32)
    held = []
    for number, restarts in enumerate((False, True)):
        folder = tmp_path / str(number)
        with fleet(1, *flags, data=folder) as one, one.client(strategy="sync") as ps:
            ps.create(SparseSpec("wide", 16, OptimizerSpec("sgd", lr=1.0)))
            ps.step()
            count = 0
            with pytest.raises(RequestError, match="limit is"):
                while True:
                    if restarts and count == 25:
                        finish(one.servers[0])
                        one.restart(0)
                    ps.push("wide", np.arange(2000) + 2000 * count, rows)
                    ps.flush()
                    count += 1
            ps.step()
            held.append(count)
    assert held[0] == held[1] > 25
