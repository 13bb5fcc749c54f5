"""What goes wrong around a job: full disks, no memory, a terminal nobody looks at."""

from __future__ import annotations

import fcntl
import os
import signal
import termios
from typing import TYPE_CHECKING

import pytest

from cgroups import small_memory_group
from local.jobs import free_port, wait_until
from real.hosts import need_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local.jobs import World

SMALL_DISK = 'mount -t tmpfs -o size=64k,mode=700 tmpfs "$0" && exec "$@"'
MEMORY_LIMIT = 150 << 20


def test_a_full_disk_stops_no_training(world: World) -> None:
    """The loss is said once for each rank, the console has everything, the job ends well."""
    need_hosts()  # for mount namespaces
    world.log_dir.mkdir()
    text = "for n in range(20000):\n    print('line', n)\ntell('trained', RANK)\n"
    running = world.start(
        "--nproc_per_node", 2, world.script(text),
        before=["unshare", "--mount", "sh", "-c", SMALL_DISK, str(world.log_dir)],
    )  # fmt: skip
    ended = running.end()
    assert (ended.code, ended.left) == (0, [])
    assert ended.out == "".join(f"line {n}\n" for n in range(20000))
    assert len(world.events.all("trained")) == 2
    for rank in (0, 1):
        assert "No space left on device" in ended.line(f"output of rank {rank} is being lost")


def test_a_log_lost_on_one_node_is_told_on_the_other(world: World) -> None:
    """At once and with the verdict; whoever reads only the first node's console learns of it."""
    need_hosts()
    script = world.script("for n in range(20000):\n    print('line', n)\n")
    words = ("--nnodes", 2, "--nproc_per_node", 1, "--master", f"127.0.0.1:{free_port()}", script)
    first = world.start(*words, log_dir=world.folder / "first")
    first.wait_for("no job key")  # it is where they meet
    small = world.folder / "small"
    small.mkdir()
    before = ["unshare", "--mount", "sh", "-c", SMALL_DISK, str(small)]
    second = world.start(*words, log_dir=small, before=before)
    ended = [first.end(), second.end()]
    assert [e.code for e in ended] == [0, 0], ended[0].err
    told = [line for line in ended[0].err.splitlines() if "some output of rank 1 is lost" in line]
    assert len(told) == 2, ended[0].err
    assert all("warning: " in line and "No space left on device" in line for line in told)


def test_a_disk_that_is_full_before_the_start_stops_no_training(world: World) -> None:
    """Files can be made, but nothing fits."""
    need_hosts()
    world.log_dir.mkdir()
    fill = 'mount -t tmpfs -o size=16k tmpfs "$0"; cat /dev/zero > "$0/full"; exec "$@"'
    running = world.start(
        "--nproc_per_node", 1, world.script("print('trained')"),
        before=["unshare", "--mount", "sh", "-c", fill, str(world.log_dir)],
    )  # fmt: skip
    ended = running.end()
    assert ended.left == []
    assert ended.code == 0 or (ended.code == 2 and "log" in ended.err), ended.err


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A cgroup that may use little memory; removed after the test."""
    with small_memory_group(MEMORY_LIMIT) as group:
        yield group


def test_an_oom_kill_is_told_from_a_kill(world: World, small_memory: Path) -> None:
    """SIGKILL has many senders; the kernel counts its own."""
    text = """
if RANK == 1:
    kept = []
    while True:
        kept.append(bytearray(b"x" * (8 << 20)))
forever()
"""
    running = world.start(
        "--nproc_per_node", 2, world.script(text),
        before=["sh", "-c", f'echo $$ > {small_memory}/cgroup.procs && exec "$@"', "sh"],
    )  # fmt: skip
    ended = running.end()
    assert (ended.code, ended.left) == (137, [])
    assert "rank 1 " in ended.line("first failure")
    limit = f"the limit is {MEMORY_LIMIT >> 20} MiB (cgroup)"
    assert f"was killed for lack of memory (SIGKILL, cgroup oom_kill; {limit})" in ended.err


def test_a_plain_kill_is_not_called_lack_of_memory(world: World, small_memory: Path) -> None:
    """The same cgroup, another sender."""
    running = world.start(
        "--nproc_per_node", 2, world.script("os.kill(os.getpid(), 9) if RANK else forever()"),
        before=["sh", "-c", f'echo $$ > {small_memory}/cgroup.procs && exec "$@"', "sh"],
    )  # fmt: skip
    ended = running.end()
    assert ended.code == 137
    assert "was killed by SIGKILL" in ended.line("first failure")
    assert f"sends SIGKILL: memory here is {MEMORY_LIMIT >> 20} MiB" in ended.line("wrote nothing")


def test_restarting_may_be_for_lack_of_memory_only(world: World, small_memory: Path) -> None:
    """--restart-on oom."""
    text = """
tell("up", ATTEMPT)
kept = []
while ATTEMPT == 0:
    kept.append(bytearray(b"x" * (8 << 20)))
"""
    running = world.start(
        "--nproc_per_node", 1, "--max_restart", 1, "--restart-on", "oom", world.script(text),
        before=["sh", "-c", f'echo $$ > {small_memory}/cgroup.procs && exec "$@"', "sh"],
    )  # fmt: skip
    ended = running.end()
    assert (ended.code, len(world.events.all("up"))) == (0, 2)


def test_one_of_64_ranks_ends_all_of_them(world: World) -> None:
    """Its code, its name, and 63 that are stopped."""
    text = "tell('up')\nif RANK == 41:\n    gate()\n    sys.exit(9)\nforever()\n"
    running = world.start("--nproc_per_node", 64, world.script(text))
    world.events.wait("up", count=64)
    world.open_gate(1)
    ended = running.end()
    assert (ended.code, ended.left) == (9, [])
    assert "rank 41 " in ended.line("first failure")


def pipe_is_full(read_fd: int) -> bool:
    """Whether a pipe holds as much as it can (FIONREAD, F_GETPIPE_SZ)."""
    waiting = int.from_bytes(fcntl.ioctl(read_fd, termios.FIONREAD, b"\0" * 4), "little")
    return waiting > fcntl.fcntl(read_fd, 1032) - 4096


@pytest.mark.parametrize("ends", ["sys.exit(7)", "sys.exit(0)", "signal"])
def test_a_hung_console_does_not_hold_the_end(world: World, ends: str) -> None:
    """stdout and stderr go to a pipe that nobody reads; rank 0 has filled it, and floods on."""
    read_fd, write_fd = os.pipe()
    text = """
if RANK == 0 and os.fork() == 0:
    tell("floods")
    while True:
        os.write(1, b"x" * 4095 + b"\\n")
tell("up")
gate()
"""
    running = world.start(
        "--nproc_per_node", 2, world.script(text + ("" if ends == "signal" else ends)),
        before=["sh", "-c", 'exec "$@" 2>&1', "sh"], stdout=write_fd,
    )  # fmt: skip
    os.close(write_fd)
    world.events.wait("up", count=2)
    world.events.wait("floods")
    wait_until(lambda: pipe_is_full(read_fd))
    if ends == "signal":
        running.signal(signal.SIGTERM)
    else:
        world.open_gate(2)
    ended = running.end()
    os.close(read_fd)
    wanted = {"sys.exit(7)": 7, "sys.exit(0)": 0, "signal": 143}[ends]
    assert (ended.code, ended.left) == (wanted, [])
