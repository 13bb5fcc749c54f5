"""One lab per backend: what `paddock submit` is told there, and what its hosts are.

A property (properties.py) says what must be so everywhere; a lab says how it is said on one
backend. Lab itself is for hosts that are made here; what others replace comes last.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.jobs import wait_until
from schemas import mistakes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from conformance.hosts import Host, Hosts, Inside

# What people call a directory: with blanks, and in their language.
PROJECT = "我的 project"
PADDOCK = (sys.executable, "-m", "paddock")
ENDED = ("succeeded", "failed", "cancelled", "lost")


@dataclass
class Lab:
    """A backend on three hosts; the laptop submits.

    words: what tells submit where to run. is_shared: whether the hosts share the jobs' directories.
    asks_first: what the hosts lack is told before anything starts. on_laptop: part of the job
    runs on the laptop, and the job ends with it. follows: what may become of the laptop so that a
    job that is stayed with ends. secret_files: names of files, for their owner only and gone with
    the job, that may hold secrets meanwhile. spools: where a queue keeps what it was handed.
    knows_ranks: whether the launchers tell how each rank has ended. jobs_at_once: of one rank
    each; where submit waits for resources, no more than there are.
    """

    name: str
    hosts: Hosts
    words: tuple[str, ...]
    is_shared: bool = False
    asks_first: bool = False
    on_laptop: bool = False
    follows: tuple[str, ...] = ()
    secret_files: tuple[str, ...] = ()
    spools: tuple[Path, ...] = ()
    knows_ranks: bool = True
    jobs_at_once: int = 10
    env: dict[str, str] = field(default_factory=dict)

    @property
    def laptop(self) -> Host:
        """Where submit is typed."""
        return self.hosts.laptop

    @property
    def project(self) -> Path:
        """The working directory on the laptop, as this machine sees it."""
        folder = self.laptop.home / PROJECT
        folder.mkdir(exist_ok=True)
        return folder

    def script(self, text: str, name: str = "train.py") -> str:
        """A script in the project; returns its name."""
        (self.project / name).write_text(HEAD + text, "utf-8")
        return name

    def command(self, *words: object) -> list[str]:
        """`paddock WORDS` in the project's directory."""
        line = f'cd ~/"{PROJECT}" && exec "$@"'
        return ["sh", "-c", line, "sh", *PADDOCK, *map(str, words)]

    def paddock(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run `paddock WORDS` to its end."""
        return self.laptop.run(self.command(*words), env=self.env)

    def python(self, text: str, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a Python program of the user's in the project's directory, with these arguments."""
        line = f'mkdir -p ~/"{PROJECT}" && cd ~/"{PROJECT}" && exec "$@"'
        argv = [PADDOCK[0], "-c", text, *map(str, words)]
        return self.laptop.run(["sh", "-c", line, "sh", *argv], env=self.env)

    def submit(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Submit, and come back: the job outlives us."""
        return self.paddock("submit", *self.words, "--detach", "--nproc_per_node", 2, *words)

    def submitted(self, *words: object) -> str:
        """The same, where it must succeed; the id of the job."""
        done = self.submit(*words)
        assert done.returncode == 0, done.stderr
        (handle,) = done.stdout.split()
        return handle

    def stay(self, *words: object) -> Inside:
        """Submit, and stay with the job."""
        command = self.command("submit", *self.words, "--nproc_per_node", 2, *words)
        return self.laptop.start(command, env=self.env)

    def status(self, job: str = "last") -> dict[str, Any]:
        """What `paddock status --json` says."""
        done = self.paddock("status", job, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        assert mistakes("jobs.json", found) == []
        return found

    def until(self, *states: str, job: str = "last") -> dict[str, Any]:
        """Wait until the job is in one of these states."""
        seen: list[dict[str, Any]] = []

        def is_there() -> bool:
            seen.append(self.status(job))
            state = seen[-1]["state"]
            assert state in states or state not in ENDED, seen[-1]
            return state in states

        wait_until(is_there)
        return seen[-1]

    def until_up(self, ranks: int, job: str = "last") -> None:
        """Wait until so many processes run."""
        wait_until(lambda: self.status(job)["ranks_up"] >= ranks)

    def logs(self, job: str = "last", *words: object) -> list[str]:
        """The merged stream, without what the launcher wrote into it."""
        done = self.paddock("logs", job, *words)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if "----- paddock:" not in line]

    def ranks_alive(self, words: bytes = rb"\0-u\0train\.py") -> list[int]:
        """Processes of training scripts, wherever; not those that started them.

        words: what else to look for in the command lines.
        """
        return [pid for pid in self.guests() if re.search(words, _command_line(pid))]

    # ------------------------------------------------------------------- what others replace

    def node_name(self, index: int) -> str:
        """How a node of the last job is called."""
        return self.hosts[index].name

    def lose_node(self, index: int) -> tuple[str, ...]:
        """Take a node from the last job, without a word; by which texts it may be named."""
        self.hosts[index].kill()
        return self.node_name(index), f"node {index}"

    def guests(self) -> list[int]:
        """Processes of jobs, as this machine counts."""
        return [pid for host in self.hosts for pid in host.guests()]

    def folders(self) -> list[Path]:
        """Where files of jobs can be: here, and there."""
        homes = [host.home for host in self.hosts]
        return [self.laptop.home / ".local", *homes, self.hosts.shared, *self.spools]

    def left_behind(self) -> list[str]:
        """What jobs have left there."""
        roots = [host.home / "paddock" / "jobs" for host in self.hosts]
        roots.append(self.hosts.shared / "jobs")
        return [str(path) for root in roots for path in root.glob("[a-z]*")]

    def check_done(self, plan: dict[str, Any]) -> None:
        """The files of a plan are there, and so are the commands that still run."""
        for path, text in plan["files"].items():
            assert without_ports((self.hosts.folder / path).read_text()) == without_ports(text)
        hosts = {host.name: host for host in self.hosts} | {"here": self.laptop}
        for step in plan["steps"]:
            if not step["argv"] or step["argv"][0] == "sbatch":  # which has ended
                continue
            wanted = re.sub(r"\\\$[A-Z_0-9]+", r"\\S+", re.escape("\0".join(step["argv"])))
            there = [_command_line(pid).decode() for pid in hosts[step["where"]].guests()]
            found = [
                line for line in there if re.search(without_ports(wanted), without_ports(line))
            ]
            assert found, (step, there)


HEAD = """\
import json, os, signal, sys, time
RANK = int(os.environ["PADDLE_TRAINER_ID"])
WORLD = int(os.environ["PADDLE_TRAINERS_NUM"])
def say(*words):
    print(*words, flush=True)
def forever():
    while True:
        signal.pause()
"""


def _command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def without_ports(text: str) -> str:
    """Another job meets at another port."""
    return re.sub(r"(:|port )\d{5}\b", r"\1PORT", text)


def secrets_in(folders: Sequence[Path], secret: str) -> list[Path]:
    """Files below these folders that hold a text."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and secret.encode() in path.read_bytes():
                found.append(path)
    return found
