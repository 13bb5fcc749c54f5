"""Hosts that are as real as one machine can make them: sshd, home, /tmp, processes, a network.

A host is the first process of a process namespace, with a network, host name, mounts and shared
memory of its own. It takes lines of shell on its standard input and ends with it, so with the
tests at the latest; the kernel ends everything else on that host.

The laptop is one more host: where people type. It alone has the repository and the packages of the
tests. The other hosts have the Python of the system, and the bare one that ours was made from.

What is left of the machine's file system is shared by all hosts, and read only by habit.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from local.jobs import MARK, ROOT, Running, children_of, kill_pids, patience, wait_until
from real.bridge import Bridge, run
from stopped import stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HOME, TMP = Path("/root"), Path("/tmp")  # each host has its own
NETWORK = "10.124.0"
LAPTOP, CONTROLLER = 100, 101  # their numbers; those of hosts begin with 1
SLOTS = 2
PLACE = "PADDOCK_TEST_HOSTS"  # where their files are: another file system, for measurements
NAMESPACES = ("--net", "--uts", "--ipc", "--mount", "--pid")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON = "/usr/bin/python3"  # what all hosts have
BASE = Path(sys.base_prefix).resolve()  # the Python that .venv was made from: all hosts have it
# What only the laptop has.
OURS = sorted({p.resolve() for p in (ROOT, Path(sys.prefix), BASE)})

SSH = {
    "sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client",
    PYTHON: "python3",
}  # fmt: skip
MPI = {"mpirun": "openmpi-bin"}
SSH_CONFIG = """\
Host *
  IdentityFile {etc}/id
  UserKnownHostsFile {etc}/known_hosts
  StrictHostKeyChecking yes
  BatchMode yes
  LogLevel ERROR
"""
SSHD_CONFIG = """\
AuthorizedKeysFile {etc}/id.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
LogLevel VERBOSE
Subsystem sftp internal-sftp
MaxStartups 200
"""
SSHD = """\
mount -t tmpfs none /run
mkdir /run/sshd
/usr/sbin/sshd -D -f {etc}/sshd_config -h {etc}/{name} -E {log}/sshd-{name} </dev/null &
for _ in {{1..1000}}; do
  ! grep -q ':0016 00000000:0000 0A' /proc/net/tcp || break
  sleep 0.01 </dev/null
done
"""


class Inside(Running):
    """A command on a host. Signals go to it, and not to nsenter, which only waits for it."""

    @property
    def pid(self) -> int:
        """Of the command, as this machine counts."""
        wait_until(lambda: bool(children_of(self.process.pid)))
        (pid,) = children_of(self.process.pid)
        return pid


class Host:
    """One host."""

    def __init__(self, hosts: Hosts, name: str, number: int) -> None:
        self.hosts = hosts
        self.name = name
        self.number = number
        self.address = f"{NETWORK}.{number}"
        self.home = hosts.folder / "home" / name  # what is /root there
        self.tmp = hosts.folder / "tmp" / name  # what is /tmp there
        self._log = hosts.folder / "log" / f"init-{name}"
        self.env = {  # of what starts here
            "HOME": str(HOME), "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash",
            "PATH": SYSTEM_PATH, "LANG": "C.UTF-8",
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }  # fmt: skip
        if number == LAPTOP:
            self.env["PATH"] = f"{Path(sys.executable).parent}:{SYSTEM_PATH}"
            self.env["PYTHONPATH"] = str(ROOT / "src")
        self.up = False
        self._services: list[str] = []
        self._own: list[int] = []

    def boot(self) -> None:
        """Switch it on. It has its home as it was, and an empty /tmp."""
        assert not self.up
        with open(self._log, "ab") as log:
            self._init = subprocess.Popen(
                ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc", "bash", "-eu"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                cwd="/", env={"PATH": SYSTEM_PATH},
            )  # fmt: skip
        self.up = True
        shutil.rmtree(self.tmp, ignore_errors=True)
        self.tmp.mkdir(parents=True)
        self.tmp.chmod(0o1777)
        if not self.home.exists():
            shutil.copytree(self.hosts.etc / "ssh", self.home / ".ssh")
        self.sh(f"hostname {self.name}\nip link set lo up")
        (self._first,) = children_of(self._init.pid)
        self.hosts.bridge.plug(self.number, self._first)
        self.sh(f"ip address add {self.address}/24 dev eth0\nip link set eth0 up")
        self.sh("\n".join(self._mounts()))
        self.sh(SSHD.format(etc=self.hosts.etc, log=self.hosts.folder / "log", name=self.name))
        for lines in self._services:
            self.sh(lines)
        self._own = self.pids()

    def serve(self, lines: str) -> None:
        """Have lines of shell carried out, now and after each boot."""
        self._services.append(lines)
        self.sh(lines)
        self._own = self.pids()

    def _mounts(self) -> Iterator[str]:
        yield f"mount --bind {self.hosts.etc}/hosts /etc/hosts"
        yield "mount -t tmpfs none /dev/shm"
        # What is at its own place only on the laptop, for tests whose hosts have frameworks.
        packages = self.hosts.packages
        yield f"mkdir -p {packages}\nmount --bind {Path(sys.prefix).resolve()} {packages}"
        for path in OURS:
            for private, here in ((HOME, self.home), (TMP, self.tmp)):
                if private in path.parents and (self.number == LAPTOP or path == BASE):
                    there = here / path.relative_to(private)
                    yield f"mkdir -p {there}\nmount --bind {path} {there}"
        yield f"mount --rbind {self.home} {HOME}\nmount --rbind {self.tmp} {TMP}"
        if self.number != LAPTOP:
            for path in sorted({*OURS} - {BASE}):
                yield f"[ ! -d {path} ] || mount -t tmpfs none {path}"

    def sh(self, lines: str) -> None:
        """Have the first process carry out lines of shell; behind `&`, they stay."""
        assert self._init.stdin is not None and self._init.stdout is not None
        self._init.stdin.write(f"{lines}\necho done\n")
        self._init.stdin.flush()
        said = self._init.stdout.readline()
        assert said == "done\n", f"{self.name}: {lines}: {self._log.read_text()}"

    def command(self, argv: Sequence[object], env: Mapping[str, str] | None = None) -> list[str]:
        """What starts a command here, in the home folder, with no other variables than ours."""
        enter = ["nsenter", "-t", str(self._first), *NAMESPACES, "env", "-i", f"--chdir={HOME}"]
        words = {**self.env, **(env or {})}
        return [*enter, *(f"{n}={v}" for n, v in words.items()), *map(str, argv)]

    def run(
        self, argv: Sequence[object], *, env: Mapping[str, str] | None = None, input: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command here to its end, in the home folder, with no other variables than ours."""
        return subprocess.run(
            self.command(["setsid", *argv], env), input=input, capture_output=True, text=True,
            timeout=patience(), check=False, errors="replace",
        )  # fmt: skip

    def start(self, argv: Sequence[object], *, env: Mapping[str, str] | None = None) -> Inside:
        """Start a command here; what is left of it ends with the test."""
        mark = uuid.uuid4().hex
        command = self.command(["setsid", *argv], {MARK: mark, **(env or {})})
        running = Inside(command, cwd=self.hosts.folder, env=os.environ, mark=mark)
        self.hosts.running.append(running)
        return running

    def sessions(self) -> int:
        """How often a command was started here over ssh."""
        log = self.hosts.folder / "log" / f"sshd-{self.name}"
        return log.read_text(errors="replace").count("Starting session: command")

    def pids(self) -> list[int]:
        """Every process of this host, as this machine counts."""
        if not self.up:
            return []
        wanted = _namespace(self._first)
        return [int(p) for p in os.listdir("/proc") if p.isdigit() and _namespace(p) == wanted]

    def guests(self) -> list[int]:
        """Every process here that did not come with this host."""
        return [pid for pid in self.pids() if pid not in self._own]

    def kill(self) -> None:
        """Power off: first the cable, so that nothing says goodbye, then every process."""
        if self.up:
            self.cut_cable()
            self.up = False
            self._init.kill()
            self._init.communicate()
            self.hosts.bridge.unplug(self.number)

    def cut_cable(self) -> None:
        """From now on no packet comes or goes."""
        self.hosts.bridge.cut(self.number)

    def mend_cable(self) -> None:
        """Packets flow again, in a second or so."""
        self.hosts.bridge.mend(self.number)

    def freeze(self, *, thaw: bool = False) -> None:
        """SIGSTOP (SIGCONT) to every process here; the kernel still answers for it."""
        if thaw:
            kill_pids(self.pids(), signal.SIGCONT)
        else:
            stop(self.pids())


class Hosts:
    """h1, h2, ... and the laptop on one bridge."""

    def __init__(self, count: int, bridge: Bridge | None = None) -> None:
        self.running: list[Running] = []
        where = os.environ.get(PLACE, "/var/tmp")  # not below /tmp, which each host has for itself
        self.folder = Path(tempfile.mkdtemp(prefix="paddock-hosts-", dir=where))
        self.folder.chmod(0o755)
        self.etc = self.folder / "etc"
        self.shared = self.folder / "shared"  # at the same path on every host
        self.packages = self.folder / "packages"  # those of .venv, on every host
        self.ssh_config = self.etc / "ssh_config"
        self.machines = self.etc / "machines"  # as mpirun --hostfile takes it
        self.bridge = bridge or Bridge()
        numbers = range(1, count + 1)
        self._hosts = [Host(self, f"h{number}", number) for number in numbers]
        self.laptop = Host(self, "laptop", LAPTOP)
        self.controller = Host(self, "controller", CONTROLLER)  # off, but for Slurm
        try:
            self._write_etc()
            for host in [*self._hosts, self.laptop]:
                host.boot()
        except BaseException:
            self.close()
            raise

    def _write_etc(self) -> None:
        """Names, keys and settings."""
        for folder in (self.etc / "ssh", self.shared, self.folder / "log"):
            folder.mkdir(parents=True)
        everybody = [*self._hosts, self.laptop, self.controller]
        for key in (self.etc / "id", *(self.etc / host.name for host in everybody)):
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key.name, "-f", str(key)])
        self._write("hosts", "127.0.0.1 localhost", *(f"{h.address} {h.name}" for h in everybody))
        for host in everybody:
            key_text = (self.etc / f"{host.name}.pub").read_text()
            self._write("known_hosts", f"{host.name},{host.address} {key_text}")
        self._write("machines", *(f"{host.name} slots={SLOTS}" for host in self._hosts))
        self._write("ssh_config", SSH_CONFIG.format(etc=self.etc))
        self._write("sshd_config", SSHD_CONFIG.format(etc=self.etc))
        shutil.copy(self.ssh_config, self.etc / "ssh" / "config")

    def _write(self, name: str, *rows: str) -> None:
        with open(self.etc / name, "a") as file:
            file.writelines(f"{row}\n" for row in rows)

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def install(self) -> Path:
        """Put paddock on every host, as people do, in the shared folder; returns the program."""
        shutil.copytree(ROOT / "src" / "paddock", self.shared / "lib" / "paddock")
        program = self.shared / "bin" / "paddock"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\nPYTHONPATH={self.shared}/lib exec {PYTHON} -m paddock "$@"\n'
        )
        program.chmod(0o755)
        return program

    def make_python(self, *packages: str) -> Path:
        """A Python of the site, at the same path on all hosts: with these packages of ours, only.

        Nothing but folders of these names is copied, as for numpy: no numba, no xxhash.
        """
        folder = self.shared / "-".join(("python", *packages))
        run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        (site,) = folder.glob("lib/python3.*/site-packages")
        for package in packages:
            (found,) = find_spec(package).submodule_search_locations
            for each in (Path(found), Path(found).with_name(f"{package}.libs")):
                if each.exists():
                    shutil.copytree(each, site / each.name)
        return folder / "bin" / "python"

    def close(self) -> None:
        """Switch everything off; nothing is left."""
        for host in [*self._hosts, self.laptop, self.controller]:
            host.kill()
        for running in self.running:
            running.kill()
        self.bridge.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _namespace(pid: int | str) -> str:
    """The process namespace a process is in; empty when it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""
