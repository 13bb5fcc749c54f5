"""What this machine can tell before anything runs: one line, one hint, exit 2, nothing left."""

from __future__ import annotations

import os
import re
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from local.jobs import Ended, World


def check_refused(ended: Ended, message: str, code: int = 2) -> None:
    """One error with its hint, no traceback, nothing else, nothing left."""
    errors = [line for line in ended.err.splitlines() if line.startswith("paddock: error: ")]
    assert len(errors) == 1 and re.search(message, errors[0]), ended.err
    assert ended.err.splitlines()[-1].startswith("  hint: "), ended.err
    assert "Traceback" not in ended.err
    assert (ended.code, ended.out, ended.left) == (code, "", [])


def run(world: World, *words: object) -> Ended:
    """Run quietly, so that the error stands alone."""
    return world.run("--log_level", "ERROR", *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nofile.py", "script 'nofile.py' does not exist"),
        ("--nnodes 0 train.py", "--nnodes 0"),
        ("--nnodes 4:2 train.py", "minimum is above the maximum"),
        ("--nnodes two train.py", "not a number of nodes"),
        ("--devices 0 train.py", "no accelerator"),
        ("--run_mode colective train.py", "colective"),
        ("--servers 127.0.0.1 --trainers 127.0.0.1:701 train.py", "no port"),
        (
            "--servers 127.0.0.1:20001,127.0.0.1:20001 --trainers 127.0.0.1:20002 train.py",
            "listed twice",
        ),
        ("-f pod.yaml", "PaddleJob"),
        ("--log_dir train.py/log train.py", "log_dir 'train.py/log' is not writable"),
        ("--start_port 65530 --nproc_per_node 20 train.py", "port 65536 is above"),
        ("--nnodes 2 --master no-such-name.invalid:7000 train.py", "no-such-name.invalid"),
        ("--nnodes 2 --master 127.0.0.1 train.py", "no port"),
        ("--nnodes 2 --ips 192.0.2.77,192.0.2.78 train.py", "none of --ips"),
        ("--nnodes 2 --master 127.0.0.1:7000 --token_file no-such train.py", "cannot be read"),
        ("--nnodes 2 --rank 2 --master 127.0.0.1:7000 train.py", "ranks are 0..1"),
        ("--host no-such-name.invalid train.py", "--host no-such-name.invalid"),
        ("--tail 7 --nproc_per_node 2 train.py", "there is no rank 7, this job has 2"),
        ("--xpus 0,1 train.py", "--xpus 0,1: this machine has no Kunlun XPU"),
    ],
)
def test_bad_input_is_one_error_with_a_hint(world: World, words: str, message: str) -> None:
    """Each with a line that names it, and exit code 2."""
    world.script("tell('started')")
    (world.folder / "pod.yaml").write_text("apiVersion: batch.paddlepaddle.org/v1\nkind: Pod\n")
    check_refused(run(world, *words.split()), message)
    assert world.events.all("started") == []


def test_a_script_of_nearly_that_name_is_meant(world: World) -> None:
    """Of those in the folder that was named."""
    world.script("tell('started')")
    ended = run(world, "trian.py")
    check_refused(ended, "script 'trian.py' does not exist")
    assert "did you mean 'train.py'?" in ended.err
    ended = run(world, "nosuch.py")  # alike in its ending only
    assert "hint: check the path" in ended.err


def test_a_log_dir_that_cannot_be_written_is_told_before_all_else(world: World) -> None:
    """Thirty lines of settings stood above it."""
    ended = world.run("--log_dir", "train.py/log", world.script("tell('started')"))
    check_refused(ended, "log_dir 'train.py/log' is not writable: Not a directory")
    assert len(ended.err.splitlines()) == 2


def test_a_port_in_use_is_bad_input_that_names_its_owner(world: World) -> None:
    """The ranks never start on a port that is taken."""
    with closing(socket.create_server(("", 0))) as server:
        port = server.getsockname()[1]
        ended = run(world, "--start_port", port, "--nproc_per_node", 1, world.script("pass"))
    check_refused(ended, rf"port {port} is in use by pid \d+ \(")


def test_too_few_ports_in_the_range_are_bad_input(world: World) -> None:
    """PORT_RANGE of PaddleCloud."""
    env = {"PORT_RANGE": "31000:31001"}
    ended = world.run("--log_level", "ERROR", "--nproc_per_node", 8, world.script("pass"), env=env)
    check_refused(ended, "not enough free ports: 2 found")


def test_a_directory_as_program_may_not_run(world: World) -> None:
    """Exit 126, as a shell says "Is a directory"."""
    ended = run(world, "--nproc_per_node", 2, "--no_python", world.folder)
    assert ended.code in (126, 127)
    assert (ended.left, "Traceback" in ended.err) == ([], False)


MANY = 130


def test_many_ranks_raise_the_limit_of_open_files(world: World) -> None:
    """A soft limit of 1024 is the default everywhere; 250 ranks of servers on one host are few."""
    running = world.start(
        "--nproc_per_node", MANY, "--no_python", "true",
        before=["sh", "-c", 'ulimit -Sn 400; exec "$@"', "sh"],
    )  # fmt: skip
    ended = running.end()
    assert (ended.code, ended.left) == (0, [])


def test_more_ranks_than_open_files_are_bad_input(world: World) -> None:
    """The hard limit cannot be raised by us; half a job must not start."""
    running = world.start(
        "--nproc_per_node", MANY, "--log_level", "ERROR", "--no_python", "true",
        before=limited(400),
    )  # fmt: skip
    check_refused(running.end(), "need about 934 open files, this user may have 400")


@pytest.mark.parametrize(("nprocs", "files"), [(4, 52), (40, 304)])
def test_a_job_runs_with_as_many_open_files_as_it_asks_for(
    world: World, nprocs: int, files: int
) -> None:
    """A figure that is too low ends as a fault of ours, with half of the ranks started."""
    words = ("--nproc_per_node", nprocs, "--no_python", "true")
    ended = world.start(*words, before=limited(files)).end()
    assert (ended.code, ended.left) == (0, []), ended.err
    refused = world.start(*words, before=limited(files - 1)).end()
    check_refused(refused, f"need about {files} open files, this user may have {files - 1}")


def test_a_launch_that_cannot_start_leaves_no_record(world: World) -> None:
    """An empty directory would be a damaged run in every `paddock list`."""
    state = {"XDG_STATE_HOME": str(world.folder / "state")}
    words = ("--nproc_per_node", 40, "--no_python", "true")
    ended = world.start(*words, before=limited(200), env=state).end()
    assert ended.code == 2 and os.listdir(world.folder / "state/paddock/runs") == []


def limited(files: int) -> list[str]:
    """A command that starts another with so many open files at most."""
    return ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]


def test_a_host_that_is_not_known_yet_is_no_error_in_a_pod(world: World) -> None:
    """The name of a pod is published when it has an address, and a little later."""
    world.script("tell('started')")
    ended = world.run("--host", "no-such-name.invalid", "train.py",
                      env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})  # fmt: skip
    assert ended.code == 0
    assert len(world.events.all("started")) == 1
