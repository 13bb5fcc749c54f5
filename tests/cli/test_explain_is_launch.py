"""What `paddock explain` shows of a command is what the processes of that command get."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
# The block that the process was started with: an interpreter may add to its own.
SCRIPT = """\
import os, sys, time
name = f"{os.environ['PADDOCK_ROLE']} {os.environ['PADDOCK_RANK']}"
with open("/proc/self/environ", "rb") as block, open("unready " + name, "wb") as f:
    f.write(block.read())
os.rename("unready " + name, name)
ROLES = ("ps ", "worker ", "heter ")
while sum(n.startswith(ROLES) for n in os.listdir()) < int(sys.argv[1]):
    time.sleep(0.01)  # servers are ended as soon as their workers have
"""
EXPLAIN = ("-m", "paddock", "explain", "--json")
LAUNCH = ("-m", "paddock", "launch")
PORTABLE = (
    "-c",
    "import os, sys\n"
    "from paddock.jobfile.parse import parse\n"
    "from paddock.local.portable import run_portable\n"
    "job = parse(sys.argv[1:], os.environ, python=sys.executable).job\n"
    "sys.exit(run_portable(job, os.environ, len(os.sched_getaffinity(0))))\n",
)
COLLECTIVE = "--nproc_per_node 2"
PS = "--server_num 2 --worker_num 2"
HETER = f"{PS} --heter_worker_num 1;2"
SERVERS = "--servers 127.0.0.1:{0},127.0.0.1:{1}"
HETERS = "--heter_workers 127.0.0.1:{3};127.0.0.1:{4}"
PORT = "[1-9][0-9]{3,4}"


def free_ports(count: int) -> list[int]:
    """Consecutive ports that nobody has."""
    for first in range(21_000, 31_000, count):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return list(range(first, first + count))
    raise AssertionError("no free ports")


def like(name: str, shown: str) -> str:
    """The pattern of a value: port 0 is one chosen at the start, <...> is known from then on."""
    if shown == "0" and name.endswith("_PORT"):
        return PORT
    pattern = re.sub(r":0(?![0-9])", f":{PORT}", re.escape(shown))
    return re.sub(r"<[^>]*>", ".+", pattern)


def differences(shown: dict[str, str], got: dict[str, str]) -> list[str]:
    """Every variable of which something else was shown than the process got."""
    absent = "(absent)"
    pairs = {n: (shown.get(n, absent), got.get(n, absent)) for n in sorted({*shown, *got})}
    return [
        f"{name}: {text}, but got {real}"
        for name, (text, real) in pairs.items()
        if not re.fullmatch(like(name, text), real)
    ]


@pytest.mark.parametrize(
    ("path", "line", "more"),
    [
        (LAUNCH, COLLECTIVE, {}),
        (LAUNCH, f"{COLLECTIVE} --start_port {{0}} --host 127.0.0.1 --framework torch", {}),
        (LAUNCH, COLLECTIVE, {"FLAGS_FIXED_PORT": "{0}", "PADDLE_TRAINER_ID": "0"}),
        (LAUNCH, f"{COLLECTIVE} --omp-num-threads share --run_mode rpc", {}),
        (LAUNCH, PS, {}),
        (LAUNCH, f"{PS} --start_port {{0}}", {}),
        (LAUNCH, f"{SERVERS} --workers 127.0.0.1:{{2}} --gloo_port {{3}}", {}),
        (LAUNCH, f"{SERVERS} --worker_num 2", {}),
        (LAUNCH, f"{SERVERS} --worker_num 2 --start_port {{2}}", {}),
        (LAUNCH, HETER, {}),
        (LAUNCH, f"{SERVERS} --workers 127.0.0.1:{{2}} {HETERS}", {}),
        (PORTABLE, COLLECTIVE, {}),
        (PORTABLE, f"{COLLECTIVE} --start_port {{0}} --host localhost", {}),
        (PORTABLE, COLLECTIVE, {"FLAGS_FIXED_PORT": "{0}"}),
    ],
    ids=lambda content: content if isinstance(content, str) else "",
)
def test_what_is_shown_is_what_a_process_gets(
    path: tuple[str, ...], line: str, more: dict[str, str], tmp_path: Path
) -> None:
    """Service ports, ports beside a list and names of the run were shown as they never were."""
    ports = free_ports(5)
    env = {name: text.format(*ports) for name, text in more.items()}
    assert compare(tmp_path, path, [line.format(*ports)], env) == []


def test_each_node_of_a_job_gets_what_it_was_shown(tmp_path: Path) -> None:
    """Two nodes, whose servers and workers are listed in another order than the nodes."""
    ports = free_ports(4)
    near, far = "127.0.0.2", "127.0.0.3"
    servers = f"{near}:{ports[0]},{far}:{ports[1]}"
    lists = f"--servers {servers} --workers {far}:{ports[2]},{near}:{ports[3]}"
    lines = [f"{lists} --host {host} --log_dir log-{host}" for host in (near, far)]
    assert compare(tmp_path, LAUNCH, lines, {}) == []


def compare(
    folder: Path, path: tuple[str, ...], lines: list[str], more: dict[str, str]
) -> list[str]:
    """Explain a job on each node, run it: in what its processes differ from what was shown."""
    (folder / "train.py").write_text(SCRIPT)
    # Without a locale Python would set one for itself and its children.
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "LC_ALL": "C.UTF-8", **more}

    def start(path: tuple[str, ...], line: str, count: int) -> subprocess.Popen[str]:
        words = [*path, *line.split(), "--devices", "cpu", "train.py", str(count)]
        return subprocess.Popen(
            [sys.executable, *words], cwd=folder, env=env,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def end(program: subprocess.Popen[str]) -> str:
        out, err = program.communicate(timeout=25)
        assert program.returncode == 0, err
        return out

    plans = [json.loads(end(start(EXPLAIN, line, 0)))["processes"] for line in lines]
    for program in [start(path, line, len(plans[0])) for line in lines]:
        end(program)
    found = []
    for node_rank, processes in enumerate(plans):
        for process in (p for p in processes if p["node_rank"] == node_rank):
            block = (folder / f"{process['role']} {process['rank']}").read_text().split("\0")
            got = dict(item.split("=", 1) for item in block if item)
            new = {name: text for name, text in got.items() if env.get(name) != text}
            if path == PORTABLE:  # it records nothing: its logs are right in log/
                process["environment"] |= {n: new[n] for n in new if n.endswith("LOG_DIR")}
                del process["environment"]["PADDOCK_REPORT_FD"]
            found += differences(process["environment"], new)
    return found
