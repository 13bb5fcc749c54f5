"""The flags of ``paddock pserver``, and the environment that stands in for them. Pure.

The names of 2017's ``paddle pserver`` are kept; what they were documented to mean is corrected
where the page was wrong. A flag wins over the environment. All problems are told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from paddock.command_line import Flag, FlagTable, flag, read_line, to_seconds
from paddock.errors import Problem, UsageError
from paddock.ps.endpoint import bare, split_endpoint
from paddock.ps.server.own_endpoint import IsOwn, count_here, find_index, own_endpoint

LOOPBACK = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "::")
FLAGS_HINT = "paddock pserver --help"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _seconds(text: str) -> float:
    """A duration, as in 30, 500ms or 1h30m. Raises ValueError."""
    found = to_seconds(text)
    if found is None:
        raise ValueError(text)
    return found


def _size(text: str) -> int:
    """Bytes, as in 512M or 8GiB. Raises ValueError, KeyError, OverflowError."""
    number = text.upper().rstrip("B").rstrip("I")
    unit = number[-1:] if number[-1:].isalpha() else ""
    size = float(number[: len(number) - len(unit)]) * _UNITS[unit]
    if size < 0:
        raise ValueError(text)
    return int(size)


def _port(text: str) -> int | None:
    """A port, 0 for any free one; None for "". Raises ValueError."""
    if text and not 0 <= int(text) < 65536:
        raise ValueError(text)
    return int(text) if text else None


def _list(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


# How the help shows a flag's value, and what is wanted where its text cannot be read.
_KINDS: dict[object, tuple[str, str]] = {
    int: ("N", "a whole number"),
    _port: ("PORT", "0 to 65535"),
    _seconds: ("DURATION", "seconds, or units as in 500ms, 5m, 1h30m"),
    _size: ("SIZE", "bytes, as in 512M or 8G"),
    str: ("TEXT", ""),
    _list: ("LIST", ""),
}
METAVARS = {
    "port": "PORT", "bind": "HOST", "job": "NAME", "data-dir": "DIR", "load": "DIR",
    "token-file": "FILE", "tls-cert": "FILE", "tls-key": "FILE", "tls-ca": "FILE", "ack": "",
    "on-lost-trainer": "", "end-with-trainers": "", "promote": "", "replica-of": "HOST:PORT",
    "witness": "HOST:PORT", "advertise": "HOST:PORT",
}  # fmt: skip


def _flag(
    meaning: str,
    env: str = "",
    default: str = "",
    *,
    read: Callable[[str], Any] = str,
    words: tuple[str, ...] = (),
) -> Any:
    """A field of ServerOptions that is a flag. env: variables that stand for it, between blanks."""
    flag = (default, meaning, tuple(env.split()), read, words)
    return field(default=read(default), metadata={"flag": flag})


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """A server's options, and the table of its flags.

    servers_here: of the job on this host, this one included. said: what to tell about flags.
    advertise: "" if unlisted.
    """

    # The port of the users' documents; the program's own default was 20134.
    port: int = _flag(
        "port to listen on; 0 for any free one", "PADDLE_PORT PADDLE_INIT_PORT", "7164", read=int
    )
    bind: str = _flag("address to listen on; 127.0.0.1 without a token")
    num_gradient_servers: int = _flag(
        "number of trainers (not of servers)",
        "PADDLE_TRAINERS_NUM PADDLE_INIT_NUM_GRADIENT_SERVERS OMPI_COMM_WORLD_SIZE PMI_SIZE",
        "1",
        read=int,
    )
    endpoints: tuple[str, ...] = _flag(
        "host:port of every server of the job, in order", "PADDLE_PSERVERS_IP_PORT_LIST", read=_list
    )
    index: int = _flag("which of the endpoints this server is", "PADDLE_PSERVER_ID", "-1", read=int)
    job: str = _flag(
        "the job's id; trainers of another job are refused",
        "PADDLE_JOB_ID PADDOCK_JOB_ID",
        "default",
    )
    data_dir: str = _flag(
        "log and snapshots; without it the state dies with the process", "PADDOCK_PS_DATA_DIR"
    )
    load: str = _flag("a checkpoint to begin with, where there is no state yet")
    ack: str = _flag(
        "when a push is acknowledged: memory, log, disk or replica",
        "PADDOCK_PS_ACK",
        words=("memory", "log", "disk", "replica"),
    )
    snapshot_every: int = _flag(
        "bytes of log after which a snapshot is written", default="1G", read=_size
    )
    memory_limit: int = _flag(
        "bytes the tables may take; 0: 7/8 of this machine's or container's memory, divided by "
        "the job's servers on this host",
        "PADDOCK_PS_MEMORY_LIMIT",
        "0",
        read=_size,
    )
    token_file: str = _flag("file with the secret that trainers must know", "PADDOCK_PS_TOKEN_FILE")
    tls_cert: str = _flag("certificate, PEM", "PADDOCK_PS_TLS_CERT")
    tls_key: str = _flag("its key, PEM", "PADDOCK_PS_TLS_KEY")
    tls_ca: str = _flag(
        "who signed the certificates of the pair's other server and of its witness, PEM; "
        "else looked for in --tls-cert",
        "PADDOCK_PS_TLS_CA",
    )
    trainer_timeout: float = _flag(
        "seconds of silence after which a trainer is expelled",
        "PADDOCK_PS_TRAINER_TIMEOUT",
        "60",
        read=_seconds,
    )
    on_lost_trainer: str = _flag(
        "fail, or rescale: go on with those that are left",
        "PADDOCK_PS_ON_LOST_TRAINER",
        "fail",
        words=("fail", "rescale"),
    )
    end_with_trainers: str = _flag(
        "yes: end when every trainer has closed its client, or is lost (--on-lost-trainer rescale)",
        default="no",
        words=("yes", "no"),
    )
    replica_of: str = _flag(
        "host:port of the primary that this server follows, until it takes its place",
        "PADDOCK_PS_REPLICA_OF",
    )
    witness: str = _flag(
        "host:port of a server, or paddock ps witness, that says which of a pair is primary",
        "PADDOCK_PS_WITNESS",
    )
    advertise: str = _flag(
        "host:port under which the other server of the pair and trainers reach this one",
        "PADDOCK_PS_ADVERTISE",
    )
    promote: str = _flag(
        "yes, once: this server's log is the right one, after the witness lost its files",
        words=("yes",),
    )
    metrics_port: int | None = _flag(
        "Prometheus reads http://HOST:PORT/metrics, at every address; 0 for any free port",
        read=_port,
    )
    servers_here: int = 1
    said: tuple[str, ...] = ()

    @property
    def trusted(self) -> str:
        """The file of certificates that other servers and the witness must be signed by."""
        return (self.tls_ca or self.tls_cert) if self.tls_cert else ""


# Accepted, and said to do nothing: the flags of 2017 that have no meaning here.
IGNORED = {
    name: why
    for names, why in (
        ("ports_num ports_num_for_sparse", "one port serves all tables"),
        ("nics", "say which address with --bind"),
        ("rdma_tcp", "TCP, and a Unix socket for trainers of the same machine"),
        ("pserver_num_threads", "one thread a connection; run more servers for more cores"),
        ("comment", "processes are owned by their pid, not found by a comment"),
        ("small_messages", "TCP_NODELAY is always set"),
        ("sock_send_buf_size sock_recv_buf_size", "buffers are set for the frames"),
        ("log_period_server", "ask with paddock ps status"),
        (
            "async_lagged_ratio_min",
            "the trainer's strategy says how far ahead it may be: staleness=N",
        ),
        ("async_lagged_ratio_default", "the trainer's strategy says how far ahead it may be"),
        ("loadsave_parameters_in_pserver", "servers always read and write their own share"),
        ("parameter_block_size parameter_block_size_for_sparse", "shards are fixed"),
        (
            "check_sparse_distribution_in_pserver check_sparse_distribution_batches "
            "check_sparse_distribution_ratio check_sparse_unbalance_degree",
            "keys are hashed over the shards",
        ),
        (
            "log_barrier_abstract log_barrier_show_log log_barrier_lowest_nodes",
            "paddock ps status names who is waited for",
        ),
    )
    for name in names.split()
}


def _table() -> Iterator[Flag]:
    for one in fields(ServerOptions):
        if one.metadata:
            default, meaning, env, read, words = one.metadata["flag"]
            name = one.name if one.name == "num_gradient_servers" else one.name.replace("_", "-")
            shown = "" if default == "-1" else default
            yield flag(name, METAVARS.get(name, _KINDS[read][0]), meaning, env=env, choices=words,
                       default=shown)  # fmt: skip
    for name, why in IGNORED.items():
        yield Flag(name, "text", "", why, "Accepted, without effect", status="ignored", bare="1")


TABLE = FlagTable("pserver", _table(), goes_single=True)


def read_options(
    words: Sequence[str], env: Mapping[str, str], is_own: IsOwn = lambda host: False
) -> ServerOptions:
    """The options in the words of a command line and the environment. Raises UsageError.

    is_own: whether a host is this machine; asked where the list of servers leaves it open.

    >>> options = read_options(["--port=7164", "--ports_num=1", "--num_gradient_servers", "4"], {})
    >>> options.port, options.num_gradient_servers, options.bind, options.said
    (7164, 4, '127.0.0.1', ('--ports_num does nothing here: one port serves all tables',))
    """
    problems: list[Problem] = []
    line = read_line(words, TABLE)
    problems += line.problems
    hint = f"flags only; see {FLAGS_HINT}"
    problems += [Problem(f"{word!r} is not expected here", hint) for word in line.rest]
    said = [f"{name} does nothing here: {why}" for name, why in line.ignored().items()]
    given = line.texts()
    values: dict[str, Any] = {}
    for one in fields(ServerOptions):
        if not one.metadata:
            continue
        default, _, names, read, choices = one.metadata["flag"]
        named = (env[name] for name in names if env.get(name))
        text = given.get(one.name)
        text = next(named, default) if text is None else text
        shown = TABLE.by_name[one.name].name
        try:
            values[one.name] = read(text)
        except (ValueError, KeyError, OverflowError):
            problems.append(Problem(f"--{shown} is {text!r}", _KINDS[read][1]))
        if choices and text not in (default, *choices):
            problems.append(Problem(f"--{shown} is {text!r}", " or ".join(choices)))
    if not problems:
        options = _settled(ServerOptions(**values), env, is_own, problems)
        problems += [Problem(what, hint) for wrong, what, hint in _mistakes(options) if wrong]
    if problems:
        raise UsageError.of(problems)
    return replace(options, said=(*said, *(line for wrong, line in _doubts(options) if wrong)))


def _settled(
    given: ServerOptions, env: Mapping[str, str], is_own: IsOwn, problems: list[Problem]
) -> ServerOptions:
    """The options that follow from several together: which of the endpoints it is, and where."""
    for name in ("witness", "replica_of", "advertise"):
        text = getattr(given, name)
        if text and not split_endpoint(text)[1].isdigit():
            problems.append(Problem(f"--{name.replace('_', '-')} is {text!r}", "host:port"))
    endpoints, port, bind = given.endpoints, given.port, bare(given.bind)
    names = {bind, split_endpoint(given.advertise)[0], env.get("POD_IP", LOOPBACK)} - {""}
    index, problem = find_index(endpoints, port, given.index, names, is_own)
    problems += [problem] if problem is not None else []
    mine = ""
    if endpoints and problem is None:
        mine = own_endpoint(endpoints[index], port, given.replica_of, names, is_own)
    # Explicitly listed in the job's endpoints: the launcher, or an operator, chose it.
    host = split_endpoint(mine)[0]
    return replace(
        given,
        index=index,
        ack=given.ack or ("log" if given.data_dir else "memory"),
        servers_here=count_here(endpoints, host),
        bind=bind or host or ("0.0.0.0" if given.token_file else LOOPBACK),
        advertise=given.advertise or mine,
    )


def _mistakes(o: ServerOptions) -> list[tuple[object, str, str]]:
    """(whether it was made, what to say, a hint)."""
    doubled = sorted({e for e in o.endpoints if o.endpoints.count(e) > 1})
    trainers, ack, pair = o.num_gradient_servers, o.ack, "--witness HOST:PORT"
    return [
        (not 0 <= o.port < 65536, f"--port is {o.port}", "0 to 65535"),
        (trainers < 1, f"--num_gradient_servers is {trainers}", "the number of trainers"),
        (doubled, f"--endpoints lists {', '.join(doubled)} twice", "each once"),
        (ack != "memory" and not o.data_dir, f"--ack {ack} needs a log", "--data-dir DIR"),
        (
            o.load and o.witness,
            "--load does not go with --witness",
            "paddock ps load, when the pair serves",
        ),
        (o.tls_key and not o.tls_cert, "--tls-key is set without --tls-cert", "both, or neither"),
        (ack == "replica" and not o.witness, "--ack replica needs a witness", pair),
        (o.replica_of and not o.witness, "--replica-of needs a witness", pair),
        (o.witness and not o.data_dir, "a server of a pair needs a log", "--data-dir DIR"),
        (
            o.witness and o.witness == o.replica_of,
            f"--witness and --replica-of are both {o.witness}",
            "the witness must not go down with the primary: another server, or paddock ps "
            "witness on a third machine",
        ),
        (
            o.promote and o.replica_of,
            "--promote=yes and --replica-of exclude each other: is this server's log the right "
            f"one, or that of {o.replica_of}?",
            "for this server's leave out --replica-of, this once; else leave out --promote",
        ),
        (
            o.promote and not (o.witness or o.replica_of),
            "--promote needs a witness: only a server of a pair is promoted",
            f"{pair}; a server alone needs no --promote",
        ),
        (
            o.witness and o.bind in EVERYWHERE and not o.advertise,
            f"--bind {o.bind} does not say how others reach this server",
            "--advertise HOST:PORT",
        ),
    ]


def _doubts(o: ServerOptions) -> list[tuple[object, str]]:
    """(whether it is so, what to say) of what is allowed, and seldom meant."""
    return [
        (
            o.witness and o.ack != "replica",
            f"warning: --ack {o.ack}: pushes do not wait for the other server of the pair, "
            "which may miss some and never takes over by itself; --ack replica has them wait",
        ),
        (
            o.bind in EVERYWHERE and not o.token_file,
            f"warning: --bind {o.bind} without a token: who reaches this port can read and "
            "change every table, and end trainers; --token-file FILE, the same for trainers",
        ),
    ]
