"""The command line of ssh, and what its failures mean. Pure."""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass

from paddock.backends.node.boot import BOOT
from paddock.backends.text import clean

PYTHONS = ("python3", "python3.13", "python3.12", "python3.11", "python3.10",
           "/usr/bin/python3", "/usr/local/bin/python3")  # fmt: skip
HERE = ""  # the name of this machine: no ssh
CONNECT_SECONDS = 10
PERSIST_SECONDS = 600
EXIT_NO_PYTHON = 97
# Tried one after another: 97 means that this one is too old. Only characters that no login shell
# minds; what varies comes as arguments.
FIND_PYTHON = (
    'b=$1;h=$2;shift 2;for p in "$@";do case "$p" in "~/"*)p="$HOME/${p#??}";;esac;'
    'command -v "$p" >/dev/null 2>&1||continue;'
    '"$p" -I -S -c "import base64,sys;exec(base64.b64decode(sys.argv[1]))" "$b" "$h";'
    "r=$?;[ $r = 97 ]||exit $r;done;exit 97"
)


@dataclass(frozen=True)
class Target:
    """The host that ssh connects to. address: by which other hosts reach it, "" to ask it.

    has_ps: its archive contains the parameter server. slots: processes on it, 0 for one per device.
    """

    name: str
    user: str = ""
    port: int = 0
    address: str = ""
    identity: str = ""
    config: str = ""
    python: str = ""
    connect_seconds: int = CONNECT_SECONDS
    has_ps: bool = False
    slots: int = 0

    @property
    def login(self) -> str:
        """The text user@host, as people write it."""
        if self.name == HERE:
            return "this machine"
        return f"{self.user}@{self.name}" if self.user else self.name

    def connect_args(self, control: str, _python: str) -> tuple[str, ...]:
        """Return the words that run a command there, which comes last.

        control: as of ssh_args. _python: ours, for subclasses that connect by a program of ours.
        """
        return ssh_args(self, control)

    def failure(self, code: int, errors: str) -> tuple[str, str]:
        """Return message and hint for a connection that ended with this code and these errors."""
        return failure_of(self, code, errors)


def ssh_args(target: Target, control: str) -> tuple[str, ...]:
    """Return ssh and its options, up to the host.

    control: ControlPath, "" for a connection of its own. ssh never prompts: keys, agents and jump
    hosts are those of the user's own configuration.
    """
    if target.name == HERE:
        return ("sh", "-c")
    words = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={target.connect_seconds}"]
    words += ["-o", "ServerAliveInterval=3", "-o", "ServerAliveCountMax=3"]
    if control:
        words += ["-o", "ControlMaster=auto", "-o", f"ControlPath={control}"]
        words += ["-o", f"ControlPersist={PERSIST_SECONDS}"]
    if target.config:
        words += ["-F", target.config]
    if target.identity:
        words += ["-i", target.identity]
    if target.port:
        words += ["-p", str(target.port)]
    return (*words, "--", target.login)


def boot_command(digest: str, python: str = "") -> str:
    """Return the command for the host's login shell; digest is the program's."""
    source = base64.b64encode(BOOT.encode()).decode()
    candidates = (python,) if python else PYTHONS
    words = ["sh", "-c", FIND_PYTHON, "paddock", source, digest, *candidates]
    return "exec " + " ".join(shlex.quote(word) for word in words)


# Message of ssh (OpenSSH 8 to 10) -> the problem, and a hint.
FAILURES = (
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key has changed",
     "if that is right: ssh-keygen -R {name}, then log in once by hand"),
    ("Host key verification failed", "its host key is not known",
     "log in once by hand: ssh {login}"),
    ("Permission denied", "it refuses the key",
     "try: ssh {login} true; install a key with ssh-copy-id"),
    ("Could not resolve hostname", "there is no host of that name",
     "check the name, or give it a HostName in ~/.ssh/config"),
    ("Connection refused", "no sshd listens there", "start sshd, or give the right port"),
    ("Connection timed out", "it does not answer", "is it up, and is its network reachable?"),
    ("Operation timed out", "it does not answer", "is it up, and is its network reachable?"),
    ("No route to host", "there is no route to it", "is it up, and is its network reachable?"),
    ("Network is unreachable", "its network is unreachable", "check this machine's network"),
    ("Bad configuration option", "ssh does not understand its configuration", "ssh -G {login}"),
    ("Too many authentication failures", "too many keys were tried",
     "name one with identity, or IdentitiesOnly yes"),
)  # fmt: skip


def failure_of(target: Target, code: int, errors: str) -> tuple[str, str]:
    """Return message and hint for a failed connection, from ssh's exit code and its output."""
    for needle, what, hint in FAILURES:
        if needle in errors:
            if needle == "Connection refused" and target.port:
                what = f"no sshd listens on port {target.port}"
            return what, hint.format(name=target.name, login=target.login)
    if code == EXIT_NO_PYTHON:
        told = (clean(line)[:100] for line in errors.splitlines() if " is Python" in line)
        found = "; ".join(dict.fromkeys(told))[:300]
        what = target.python or "python3 of 3.10 or later"
        return (
            f"no {what} is there" + (f": {found}" if found else ""),
            "install one, or name another with --interpreter",
        )
    last = [line.strip() for line in errors.splitlines() if line.strip()]
    said = clean(last[-1])[:300] if last else ""
    return said or f"ssh ended with {code}", f"try: ssh {target.login} true"
