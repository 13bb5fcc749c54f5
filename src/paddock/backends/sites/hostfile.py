"""Hosts as people write them, in a list or a file -> HostLine. Pure.

    h1    user@h1:2222    [fe80::1]:22    h1=10.0.0.1    h1 slots=2

A file is Open MPI's host file (mpirun(1), HOST FILES), or DeepSpeed's, which looks alike
(_parse_hostfile of its launcher): a host a line, `slots=`, comments after `#`;
or the file PBS names in PBS_NODEFILE, where a host stands once for each of its slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from paddock.backends.types import Site
from paddock.core.endpoint import is_host, join_endpoint, split_endpoint
from paddock.errors import Problem, UsageError, refuse

SLOTS = ("slots", "cpu", "count")  # Open MPI's names of one thing
IGNORED = ("max_slots", "max-slots")
HINT = "write [user@]host[:port][=address], with slots=N after a blank if need be"


@dataclass(frozen=True)
class HostLine:
    """A host of a host list: its name, and the address by which other hosts reach it.

    target: name or address, also an alias of the ssh configuration. user "" and port 0: as ssh has
    them. address: where other hosts reach it, the target unless said otherwise. slots: the
    number of processes for it, 0 if not given. listed: how often a list or file names the host
    without slots; once at least.

    >>> str(HostLine("h1", "me", 2222, "10.0.0.1", 2))
    'me@h1:2222=10.0.0.1 slots=2'
    """

    target: str
    user: str = ""
    port: int = 0
    address: str = ""
    slots: int = 0
    listed: int = 1

    def __str__(self) -> str:
        name = f"[{self.target}]" if ":" in self.target else self.target
        text = join_endpoint(self.target, self.port) if self.port else name
        text = f"{self.user}@{text}" if self.user else text
        text += f"={self.address}" if self.address else ""
        return text + (f" slots={self.slots}" if self.slots else "")

    @property
    def reached_at(self) -> str:
        return self.address or self.target


def parse_host(text: str) -> HostLine:
    """Parse a host as people write it. Raises UsageError with every problem.

    >>> parse_host("me@h1:2222 slots=4")
    HostLine(target='h1', user='me', port=2222, address='', slots=4, listed=1)
    """
    problems: list[Problem] = []
    name, *words = text.split()
    name, equals, address = name.partition("=")
    words += [f"address={address}"] * bool(equals)
    user, at, rest = name.rpartition("@")
    target, port = split_endpoint(rest)
    if not is_host(target) or target.startswith("-"):
        problems.append(Problem(f"'{target or name}' is not a host name or address", HINT))
    if at and not _is_user(user):
        problems.append(Problem(f"'{user}' is not a user's name", HINT))
    if rest.endswith(":") and target.count(":") < 2:
        problems.append(Problem(f"'{name}' ends where its port should stand", HINT))
    line = HostLine(target, user, _number(port, 65535, f"port of '{name}'", problems))
    for word in words:
        key, equals, value = word.partition("=")
        if key == "address" and equals:
            # A number is an option that lost its key's spelling (retries=3), and no address.
            if not is_host(value) or value.startswith("-") or value.isdigit():
                problems.append(Problem(f"'{value}' is not an address", HINT))
            line = replace(line, address=value)
        elif key in SLOTS and value:
            line = replace(line, slots=_number(value, 1 << 20, f"{key} of '{target}'", problems))
        elif key == "port" and value:
            line = replace(line, port=_number(value, 65535, f"port of '{target}'", problems))
        elif key not in IGNORED or not equals:
            problems.append(Problem(f"'{word}' after '{target}' is not known", HINT))
    refuse(problems)
    return line


def parse_hosts(words: Iterable[object], origin: str) -> tuple[HostLine, ...]:
    """Parse the hosts of a list: texts, or pairs of host and address. origin names them in errors.

    A host that is listed n times has n slots. Raises UsageError with every problem.

    >>> [str(each) for each in parse_hosts(["h1", ("h2", "10.0.0.2"), "h1"], "--hosts")]
    ['h1 slots=2', 'h2=10.0.0.2']
    """
    return _parse_each(((origin, word) for word in words), origin)


def parse_hostfile(text: str, name: str) -> tuple[HostLine, ...]:
    """Parse the content of a host file. Raises UsageError with every problem and its line.

    >>> [str(each) for each in parse_hostfile("# ours\\nh1 slots=2\\nh2\\n", "machines")]
    ['h1 slots=2', 'h2']
    """
    lines = [
        (n, line.partition("#")[0].strip())
        for n, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1)
    ]
    return _parse_each(((f"{name}, line {n}", line) for n, line in lines if line), name)


def _parse_each(words: Iterable[tuple[str, object]], name: str) -> tuple[HostLine, ...]:
    """Parse hosts, each with the words that begin the message of its problems."""
    problems: list[Problem] = []
    found: dict[tuple[str, str, int], HostLine] = {}
    for origin, word in words:
        if isinstance(word, (list, tuple)) and len(word) == 2:
            word = f"{word[0]}={word[1]}"
        if not isinstance(word, str) or not word.strip():
            problems.append(Problem(f"{origin}: {word!r} is not a host", HINT))
            continue
        try:
            line = parse_host(word)
        except UsageError as error:
            problems += [Problem(f"{origin}: {each.message}", each.hint) for each in error.problems]
            continue
        key = (line.target, line.user, line.port)
        before = found.get(key)
        slots = line.slots if before is None else max(before.slots, 1) + max(line.slots, 1)
        address = line.address or (before.address if before else "")
        listed = before.listed + (not line.slots) if before else 1
        found[key] = replace(line, slots=slots, address=address, listed=listed)
    if not found and not problems:
        problems.append(Problem(f"{name} names no host", HINT))
    refuse(problems)
    return tuple(found.values())


def hosts_of(site: Site) -> tuple[HostLine, ...]:
    """Return the hosts of a site, () if none; its user and port are the default of each host."""
    words = site.texts("hosts")
    port = int(site.text("port", "0"))
    return tuple(
        replace(line, user=line.user or site.text("user"), port=line.port or port)
        for line in (parse_hosts(words, f"hosts of {site.name}") if words else ())
    )


def _is_user(text: str) -> bool:
    return bool(text) and not text.startswith("-") and all(c.isalnum() or c in "._-" for c in text)


def _number(text: str, high: int, what: str, problems: list[Problem]) -> int:
    """Return a number in 1..high; 0 for no text or an invalid one."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:9]) <= high:
        problems.append(Problem(f"{what}: '{text}' is not a number in 1..{high}", HINT))
        return 0
    return int(text)
