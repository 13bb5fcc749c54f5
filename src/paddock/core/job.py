"""Job: the intent of the user. Data only; the same fields from flags, environment and YAML.

Nothing here looks at the machine. ``None`` means "decide from the facts" and is resolved by
``make_plan``; every field remembers where its value came from in ``sources``.
"""

from __future__ import annotations

from paddock.core.value import fields_of, replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    Mode = Literal["collective", "ps", "ps-heter", "rpc"]
    RoleName = Literal["worker", "ps", "heter"]
    CommandKind = Literal["script", "module", "program"]
    RendezvousKind = Literal["alone", "tcp", "etcd"]
    SourceKind = Literal["flag", "environment", "file", "default"]

MODES = ("collective", "ps", "ps-heter", "rpc")
FRAMEWORKS = ("auto", "paddle", "torch", "jax", "mpi", "none")
# Paddle's names of the device types that come as plug-ins (PaddlePaddle/PaddleCustomDevice).
PLUGIN_KINDS = ("mlu", "intel_hpu", "iluvatar_gpu", "metax_gpu", "gcu", "sdaa")
WARM = ("off", "on", "keep")
ON_STALL = ("report", "stop", "restart")
DEVICE_KINDS = ("cpu", "gpu", "xpu", "dcu", "npu", *PLUGIN_KINDS)


@value
class ValueSource:
    """The source of a field's value, for ``paddock explain``.

    name: the flag, variable or YAML path; text: what stood there.
    """

    kind: SourceKind
    name: str = ""
    text: str = ""


@value
class Entrypoint:
    """The command that every process runs. ``program``: a script, module name or executable."""

    kind: CommandKind
    program: str
    args: tuple[str, ...] = ()
    python: str = "python3"

    def argv(self) -> tuple[str, ...]:
        """The arguments to execute; Python runs unbuffered so that logs are prompt.

        >>> Entrypoint("script", "train.py", ("--lr", "1"), "python").argv()
        ('python', '-u', 'train.py', '--lr', '1')
        """
        if self.kind == "script":
            script = f"./{self.program}" if self.program.startswith("-") else self.program
            return (self.python, "-u", script, *self.args)
        if self.kind == "module":
            return (self.python, "-u", "-m", self.program, *self.args)
        return (self.program, *self.args)

    @property
    def runs_python(self) -> bool:
        """True if Python runs the program; False if that cannot be told, as of a shell script.

        >>> Entrypoint("program", "/usr/bin/python3.12").runs_python
        True
        """
        return self.kind != "program" or self.program.rpartition("/")[2].startswith("python")


def make_command(
    script: str, args: tuple[str, ...], python: str, is_module: bool, is_program: bool
) -> Entrypoint:
    """Make the command: Python runs a Python file, python -m a module, all else runs by itself."""
    kind: CommandKind = "program"
    if is_module:
        kind = "module"
    elif script.endswith(".py") and not is_program:
        kind = "script"
    return Entrypoint(kind, script, args, python)


@value
class Role:
    """A group of identical processes.

    count: processes per node; None means one per device (worker only), and on_cpu of them on a
    node without devices.
    endpoints: fixed "host:port" list; its order is the rank order, and count is ignored.
    stage, device: heter only; stage 1 is the worker's, heter roles start at 2.
    """

    name: RoleName
    count: int | None = None
    endpoints: tuple[str, ...] = ()
    stage: int = 0
    device: str = ""
    on_cpu: int = 1


# Where another node can take the place of a silent one, or the job goes on without it.
LEASE_SECONDS = 3.0
# Where nobody can: the job could only end. A switch that restarts, a bond that fails over or a
# virtual machine that moves is back before that, and the job has lost nothing.
FIXED_LEASE_SECONDS = 120.0


@value
class Rendezvous:
    """The rendezvous: the way nodes find each other.

    alone: one node, no network. tcp: host:port of the coordinator; host "" means "be it, choose a
    port, print the command for the others", unless among names the hosts that node 0 may be on:
    then it is at that port of one of them. hostfile: a file with these names. etcd: endpoints of
    the etcd cluster, for people; etcd_url is the whole address and may hold a password.
    """

    kind: RendezvousKind = "alone"
    host: str = ""
    port: int = 0
    etcd: tuple[str, ...] = ()
    etcd_url: str = ""
    ips: tuple[str, ...] = ()
    among: tuple[str, ...] = ()
    hostfile: str = ""
    node_rank: int | None = None
    own_host: str = ""
    sort_ip: bool = False
    join_timeout_seconds: float = 300.0
    lease_seconds: float = LEASE_SECONDS
    token_file: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""


# Kubernetes gives up a silent node after 5 minutes, and the operator its pods a minute later.
AGAIN_SECONDS = 600.0


@value
class Elastic:
    """The elastic policy. level -1: off; 0: a node that failed leaves, others stay; 1: it restarts.

    timeout_seconds: how long to wait for more nodes than the minimum, and how long to stay below
    the minimum before giving up. wanted: nodes that are being made; 0 when not given.
    """

    level: int = -1
    timeout_seconds: float = 30.0
    wanted: int = 0

    @property
    def patience_seconds(self) -> float:
        """The seconds below the minimum before giving up: lost nodes that are wanted come again."""
        return max(self.timeout_seconds, AGAIN_SECONDS) if self.wanted else self.timeout_seconds


@value
class Restart:
    """The restart policy: when and how often a failed attempt is followed by another.

    restart_on: names of CAUSES in core/attempt/exits.py, or exit codes as text; empty means any
    cause.
    The budget is given back after healthy_seconds without a failure.
    """

    max_restarts: int = 0
    backoff_initial_seconds: float = 1.0
    backoff_max_seconds: float = 60.0
    healthy_seconds: float = 600.0
    restart_on: tuple[str, ...] = ()


@value
class Servers:
    """The program of the servers of a parameter-server job.

    command: None means the job's own, as Paddle's launcher does. is_auto: the script's text has
    still to decide (jobfile/servers.py). is_provided: it is Paddock's own server, whose state is
    in its log: one that dies is started again in place, at most max_restarts times in
    window_seconds. ends_itself: it exits with 0 when its trainers have gone, and is then left
    alone. why: one sentence for people, "" where nothing is special.
    """

    command: Entrypoint | None = None
    is_auto: bool = True
    is_provided: bool = False
    max_restarts: int = 3
    window_seconds: float = 600.0
    why: str = ""
    ends_itself: bool = False


@value
class Logs:
    """The destinations of output: log files and console.

    tail: "0", "all", ranks or role names shown on the console. streams: what is shown of them,
    (local rank, 1 stdout + 2 stderr), -1 for the local ranks not named; () shows both of all.
    line_prefix: a template for the prefix, "" for Paddock's own. console: the launcher's
    own lines: "paddle", "short", or "auto": short on a terminal.
    """

    directory: str = "log"
    overwrite: bool = False
    level: str = "INFO"
    tail: tuple[str, ...] = ("0",)
    prefix: str = "auto"
    streams: tuple[tuple[int, int], ...] = ()
    line_prefix: str = ""
    console: str = "auto"

    def streams_of(self, local_rank: int) -> int:
        """The streams of a process that the console shows: 0 none, 1 stdout, 2 stderr, 3 both.

        >>> Logs(streams=((-1, 0), (2, 3))).streams_of(2), Logs().streams_of(2)
        (3, 3)
        """
        known = dict(self.streams)
        return known.get(local_rank, known.get(-1, 3))


@value
class Job:
    """The whole intent of the user. See docs/reference/flags.md for each field's flag and variable.

    host_part: which of how many nodes of the job on its host this is. stall_after_seconds: 0 for no
    stall detection. metrics_port: for Prometheus, 0 for any free one. rank_commands: commands of
    single workers, by rank: of the one that is debugged. Two jobs are equal if they ask for the
    same, wherever each value came from: sources and servers.why do not count.
    """

    command: Entrypoint
    rank_commands: Mapping[int, Entrypoint] = {}
    job_id: str = "default"
    mode: Mode = "collective"
    framework: str = "auto"
    nnodes_min: int = 1
    nnodes_max: int = 1
    roles: tuple[Role, ...] = (Role("worker"),)
    servers: Servers = Servers()
    devices: tuple[str, ...] | None = None
    device_kind: str = ""
    host_part: tuple[int, int] = (0, 1)
    allow_uneven: bool = False
    rendezvous: Rendezvous = Rendezvous()
    elastic: Elastic = Elastic()
    restart: Restart = Restart()
    logs: Logs = Logs()
    grace_seconds: float = 10.0
    timeout_seconds: float = 0.0
    stall_after_seconds: float = 600.0
    on_stall: str = "report"
    debug_ranks: bool = False
    metrics_port: int | None = None
    start_port: int | None = None
    port_range: tuple[int, int] | None = None
    fixed_port: int | None = None
    gloo_port: int | None = None
    with_gloo: str = "1"
    keep_proxy: bool = False
    omp_num_threads: str = "auto"
    role_name: str = "default"
    virtual_local_rank: bool = False
    pre_hook: str = ""
    extra_env: tuple[tuple[str, str], ...] = ()
    record: str = ""
    warm: str = "off"
    sources: Mapping[str, ValueSource] = {}

    @property
    def is_elastic(self) -> bool:
        """True when the number of nodes may change or a failed node may be replaced."""
        return self.elastic.level >= 0

    @property
    def may_begin_again(self) -> bool:
        """True when another attempt may follow one that failed: a restart, or without a node."""
        return self.is_elastic or self.restart.max_restarts > 0

    def role(self, name: RoleName) -> Role | None:
        """Return the role of this name; None if the job has none."""
        for role in self.roles:
            if role.name == name:
                return role
        return None

    def value_of(self, path: str) -> object:
        """A field by its path; where several roles have that name, or none has, a list.

        >>> job = Job(Entrypoint("program", "a"), roles=(Role("ps", 2),))
        >>> job.value_of("restart.max_restarts"), job.value_of("roles.ps.count")
        (0, 2)
        """
        first, _, rest = path.partition(".")
        if first == "roles":
            name, _, part = rest.partition(".")
            found = [getattr(role, part) for role in self.roles if role.name == name]
            return found[0] if len(found) == 1 else found
        part = getattr(self, first)
        return getattr(part, rest) if rest else part

    @property
    def lease_seconds(self) -> float:
        """The lease of a launcher with the other nodes, in seconds; 0 where there can be none."""
        return self.rendezvous.lease_seconds if self.nnodes_max > 1 else 0.0

    def command_of(self, name: RoleName, rank: int = -1) -> Entrypoint:
        """Return the command of a role, or of one rank of it."""
        own = self.servers.command if name == "ps" else None
        own = self.rank_commands.get(rank) if name == "worker" else own
        return own or self.command

    def to_yaml(self, kind: str = "PaddleJob", *, image: str = "") -> str:
        """Return the job as a PaddleJob, from which `paddock launch -f` makes an equal job.

        image: of its containers, for a cluster. Raises UsageError with every field that has no
        counterpart there, as the number of nodes.
        """
        from importlib import import_module  # core is pure and stands below jobfile

        written = import_module("paddock.jobfile.dialects.written")
        return str(written.to_yaml(self, kind, image))

    def __eq__(self, other: object) -> bool:
        return _intent(self) == _intent(other) if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.command, self.roles, self.restart))


def _intent(job: Job) -> tuple[object, ...]:
    """Return all that the user wants, without where it is written."""
    return tuple(
        replace(job.servers, why="") if name == "servers" else content
        for name, content in fields_of(job)
        if name != "sources"
    )
