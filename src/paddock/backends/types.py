"""The types of submission: job states, handles, sites, plans, statuses, log queries. Pure.

Backends and the verbs of the command line exchange these types, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from paddock.backends.table import ENTRIES

if TYPE_CHECKING:
    from paddock.core.job import Job

State = Literal[
    "pending", "starting", "running", "stopping", "succeeded", "failed", "cancelled", "lost",
    "unknown",
]  # fmt: skip
FINAL: tuple[State, ...] = ("succeeded", "failed", "cancelled", "lost")
ALIVE: tuple[State, ...] = ("starting", "running", "stopping")  # launchers are up
DEFAULT_ROOT = "~/paddock/jobs"  # where jobs have their directories
# In Submission.extra: the minor version of Python that a function needs, such as 3.11.
CALL_PYTHON = "call_python"
FETCHED = ("log", "output")  # of a job's directory


@dataclass(frozen=True)
class Handle:
    """The address of a job, as people write it: ``ssh://site/name-3f2a``, ``slurm://cluster/1234``.

    >>> str(Handle("slurm", "cluster", "1234"))
    'slurm://cluster/1234'
    """

    backend: str
    place: str
    name: str

    def __str__(self) -> str:
        return f"{self.backend}://{self.place}/{self.name}"


def parse_handle(text: str) -> Handle | None:
    """Return the handle that a text spells, None when it spells none.

    >>> parse_handle("ssh://lab/train-3f2a"), parse_handle("train")
    (Handle(backend='ssh', place='lab', name='train-3f2a'), None)
    """
    backend, slashes, rest = text.partition("://")
    place, slash, name = rest.rpartition("/")
    if not (slashes and slash and name and backend in ENTRIES):
        return None
    return Handle(backend, place, name)


def split_list(text: str) -> tuple[str, ...]:
    """Return the parts of a text with commas or semicolons.

    >>> split_list("h1; h2,")
    ('h1', 'h2')
    """
    parts = text.replace(";", ",").split(",")
    return tuple(part.strip() for part in parts if part.strip())


@dataclass(frozen=True)
class Site:
    """The facts about a cluster that do not depend on the job: its backend and its options.

    options: the profile's keys but the backend (docs/reference/sites.md). sources: the file or flag
    that set each of them, for `explain`.
    """

    name: str
    backend: str
    options: Mapping[str, object] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        found = self.options.get(name, default)
        return found if isinstance(found, str) else str(found)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return an option that is a list, or one text with commas or semicolons."""
        found = self.options.get(name, ())
        if isinstance(found, str):
            return split_list(found)
        assert isinstance(found, (list, tuple))
        return tuple(str(each).strip() for each in found if str(each).strip())

    def lines(self, name: str) -> tuple[str, ...]:
        """Return the lines of an option that is a list of them, or one text with line breaks."""
        found = self.options.get(name, ())
        each = found.splitlines() if isinstance(found, str) else found
        assert isinstance(each, (list, tuple))
        return tuple(map(str, each))

    def table(self, name: str) -> dict[str, Any]:
        found = self.options.get(name, {})
        assert isinstance(found, dict)
        return found

    def tables(self, name: str) -> tuple[dict[str, Any], ...]:
        found = self.options.get(name, ())
        assert isinstance(found, (list, tuple))
        return tuple(found)


@dataclass(frozen=True)
class Submission:
    """A job, the site that it goes to, and what goes with it.

    run_id: name and four hex digits. flags: the launcher's arguments, as the user wrote them,
    without -f. file: content of the -f file, as JSON. takes_name: no other job may have this name
    while the job runs. package: a directory whose content becomes the working directory, or "".
    workspace: a directory that is there already. data: a glob below package whose numbered files
    are dealt out. is_detached: the job outlives its submitter. has_ps: it uses paddock.ps.
    extra: the options that only one backend knows (image, account, ...), by name; and CALL_PYTHON.
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

    def option(self, name: str) -> str:
        """Return an option of the command line, else of the site."""
        return self.extra.get(name) or self.site.text(name)

    def source(self, name: str) -> str:
        """Return the flag or site key that set an option; "" if it is not set."""
        if self.extra.get(name):
            return f"--{name} {self.extra[name]}"
        if name in self.site.options:
            return self.site.sources.get(name) or f"site {self.site.name}: {name}"
        return ""

    @property
    def nnodes(self) -> str:
        """The number of nodes as --nnodes takes it: N, or MIN:MAX."""
        low, high = self.job.nnodes_min, self.job.nnodes_max
        return str(high) if low == high else f"{low}:{high}"

    @property
    def script(self) -> tuple[str, ...]:
        """The launcher's arguments from `--` on: the script and its own; () where -f names it."""
        command = self.job.command
        return ("--", command.program, *command.args) if command.program else ()


@dataclass(frozen=True)
class PlanStep:
    """An action of a plan, at one place. argv: the command line that is executed there."""

    where: str
    what: str
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class SubmissionPlan:
    """The plan of a submission: `--dry-run` shows it, and the driver carries it out.

    rows: the table (node, host, ranks, devices). files: what is written, by path. cannot:
    a sentence for each option that this backend does not support. why: line of a file, or argument
    -> the user's line that caused it.
    """

    rows: tuple[tuple[str, str, str, str], ...]
    steps: tuple[PlanStep, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    cannot: tuple[str, ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RankStatus:
    """A process of a job. state: running, succeeded, failed or ended (by us). code: its exit."""

    role: str
    rank: int
    state: str
    code: int | None = None


def role_word(role: str) -> str:
    """Return the name in --json of statuses of a role of the launcher, the operator or Volcano.

    >>> role_word("ps"), role_word("worker")
    ('server', 'worker')
    """
    return {"ps": "server", "pserver": "server", "trainer": "worker"}.get(role, role)


def process_name(role: str, rank: int) -> str:
    """Return the name of a process that people read, as the launcher's screen does.

    >>> process_name("worker", 3), process_name("ps", 0)
    ('rank 3', 'server 0')
    """
    word = role_word(role)
    return f"{'rank' if word == 'worker' else word} {rank}"


@dataclass(frozen=True)
class NodeStatus:
    """The status of a host of a job, as its backend knows it now."""

    name: str
    state: State
    ranks: tuple[RankStatus, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Culprit:
    """The rank that failed first (root cause). rank: -1 for a whole node that was lost.

    cause: as --restart-on spells it. tail: the last lines of its log.
    """

    role: str
    rank: int
    host: str
    code: int
    cause: str = "exit"
    tail: str = ""


@dataclass(frozen=True)
class JobStatus:
    """The status of a job, asked at `as_of` (seconds since 1970).

    why: what the job waits for, or what ended it (root cause): one sentence. since: when the job
    entered its state, by its backend, 0.0 if unknown; failed_at: of the first failure. attempt:
    counts restarts, from 0. is_stalled: its ranks stand still; why says where, and which are
    suspects. profile: the kind of its lines of progress. trackers: names and addresses of pages.
    culprit: the rank that failed first.
    """

    state: State
    as_of: float
    why: str = ""
    code: int | None = None
    since: float = 0.0
    failed_at: float = 0.0
    attempt: int = 0
    nodes: tuple[NodeStatus, ...] = ()
    is_stalled: bool = False
    profile: str = ""
    trackers: tuple[tuple[str, str], ...] = ()
    culprit: Culprit | None = None

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def ranks_up(self) -> int:
        return sum(rank.state == "running" for node in self.nodes for rank in node.ranks)


@dataclass(frozen=True)
class LogQuery:
    """The filter for a job's log lines. Times in seconds since 1970, 0.0 for no limit.

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
