"""The words of submission: states, handles, what a job's status says. Pure.

Every backend speaks them, and nothing else, to the verbs of the command line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from paddock.backends.table import ENTRIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.core.job import Job

State = Literal[
    "pending", "starting", "running", "stopping", "succeeded", "failed", "cancelled", "lost",
    "unknown",
]  # fmt: skip
FINAL: tuple[State, ...] = ("succeeded", "failed", "cancelled", "lost")
ALIVE: tuple[State, ...] = ("starting", "running", "stopping")  # launchers are up
DEFAULT_ROOT = "~/paddock/jobs"  # where jobs have their directories
FETCHED = ("log", "output")  # of a job's directory


@dataclass(frozen=True)
class Handle:
    """Where a job is, as people write it: ``ssh://site/name-3f2a``, ``slurm://cluster/1234``.

    >>> str(Handle("slurm", "cluster", "1234"))
    'slurm://cluster/1234'
    """

    backend: str
    place: str
    name: str

    def __str__(self) -> str:
        return f"{self.backend}://{self.place}/{self.name}"


def parse_handle(text: str) -> Handle | None:
    """The handle that a text is, None when it is none.

    >>> parse_handle("ssh://lab/train-3f2a"), parse_handle("train")
    (Handle(backend='ssh', place='lab', name='train-3f2a'), None)
    """
    backend, slashes, rest = text.partition("://")
    place, slash, name = rest.rpartition("/")
    if not (slashes and slash and name and backend in ENTRIES):
        return None
    return Handle(backend, place, name)


@dataclass(frozen=True)
class Site:
    """Cluster facts that are not the job's: where it runs and what that place is like.

    options: what the profile says beyond the backend, by the words of docs/reference/sites.md;
    sources: where each of them stood, for `explain`.
    """

    name: str
    backend: str
    options: Mapping[str, object] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        """An option that is one text."""
        found = self.options.get(name, default)
        return found if isinstance(found, str) else str(found)

    def texts(self, name: str) -> tuple[str, ...]:
        """An option that is a list, or one text with commas or semicolons."""
        found = self.options.get(name, ())
        if isinstance(found, str):
            found = found.replace(";", ",").split(",")
        assert isinstance(found, (list, tuple))
        return tuple(str(each).strip() for each in found if str(each).strip())


@dataclass(frozen=True)
class Submission:
    """What is to be done: a job, where, and what goes with it.

    run_id: name and four hex digits. flags: the launcher's own words, as the user wrote them,
    without -f. file: what -f names, as JSON. takes_name: nobody else may have this name while the
    job runs. package: a directory whose content becomes the working directory, "" for none.
    workspace: a directory that is there already. data: a glob below package whose numbered files
    are dealt out. is_detached: the job outlives the one who submits it. has_ps: it uses paddock.ps.
    extra: the words after the flags that only one backend knows (image, account, ...), by name.
    """

    run_id: str
    name: str
    site: Site
    job: Job
    flags: tuple[str, ...] = ()
    file: str = ""
    package: str = ""
    workspace: str = ""
    data: str = ""
    is_detached: bool = False
    takes_name: bool = False
    has_ps: bool = False
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    token: str = field(default="", repr=False)
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanStep:
    """One thing that will be done, at one place. argv: the words that are executed there."""

    where: str
    what: str
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubmissionPlan:
    """What a submission comes to. `--dry-run` shows it, and the driver carries it out.

    rows: the table (node, host, ranks, devices). files: what is written, by path. cannot: what
    of the user's wishes this backend cannot honour, in sentences. why: file line or argument ->
    the line of the user's that caused it.
    """

    rows: tuple[tuple[str, str, str, str], ...]
    steps: tuple[PlanStep, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    cannot: tuple[str, ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RankStatus:
    """One process of a job. state: running, succeeded, failed or ended (by us). code: its exit."""

    role: str
    rank: int
    state: str
    code: int | None = None


def role_word(role: str) -> str:
    """What --json of statuses calls a role of the launcher, the operator or Volcano.

    >>> role_word("ps"), role_word("worker")
    ('server', 'worker')
    """
    return {"ps": "server", "pserver": "server", "trainer": "worker"}.get(role, role)


def process_name(role: str, rank: int) -> str:
    """What people call a process, as the launcher's screen does.

    >>> process_name("worker", 3), process_name("ps", 0)
    ('rank 3', 'server 0')
    """
    word = role_word(role)
    return f"{'rank' if word == 'worker' else word} {rank}"


@dataclass(frozen=True)
class NodeStatus:
    """One host of a job, as its backend knows it now."""

    name: str
    state: State
    ranks: tuple[RankStatus, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class JobStatus:
    """The truth about a job, asked at `as_of` (seconds since 1970).

    why: what it waits for, or what ended it: one sentence. since: when it entered its state, as
    its backend says, 0.0 where it does not; failed_at: of the first failure.
    attempt: counts restarts, from 0.
    """

    state: State
    as_of: float
    why: str = ""
    code: int | None = None
    since: float = 0.0
    failed_at: float = 0.0
    attempt: int = 0
    nodes: tuple[NodeStatus, ...] = ()

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL

    @property
    def ranks_up(self) -> int:
        """How many processes run now."""
        return sum(rank.state == "running" for node in self.nodes for rank in node.ranks)


@dataclass(frozen=True)
class LogQuery:
    """Which lines of a job's logs are wanted. Times in seconds since 1970, 0.0 for no limit.

    ranks: () means all. follow: until the job has ended. tail: only so many of the last lines, and
    what follows; None for all.
    """

    ranks: tuple[int, ...] = ()
    since: float = 0.0
    until: float = 0.0
    follow: bool = False
    tail: int | None = None


class LogChunk(NamedTuple):
    """Whole lines of one process. at_ns: when they were written, wall clock of the asker.

    label: host and process, as the prefix of the lines shows it.
    """

    at_ns: int
    label: str
    data: bytes
