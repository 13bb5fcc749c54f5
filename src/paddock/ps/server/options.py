"""The flags of ``paddock pserver``, and the environment that stands in for them. Pure.

The names of 2017's ``paddle pserver`` are kept; what they were documented to mean is corrected
where the page was wrong. A flag wins over the environment. All problems are told at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches

from paddock.errors import Problem, UsageError
from paddock.ps.endpoint import bare, split_endpoint
from paddock.ps.server.place import IsOwn, count_here, find_index, own_endpoint

DEFAULT_PORT = 7164  # The users' documents; the program's own default was 20134.
ACKS = ("memory", "log", "disk", "replica")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Option:
    """A flag. kind: int, float, size, word or switch. env: variables that set it, best first."""

    name: str
    kind: str
    default: str
    meaning: str
    env: tuple[str, ...] = ()


OPTIONS = (
    Option(
        "port",
        "int",
        str(DEFAULT_PORT),
        "port to listen on; 0 for any free one",
        ("PADDLE_PORT", "PADDLE_INIT_PORT"),
    ),
    Option("bind", "word", "", "address to listen on; 127.0.0.1 without a token", ()),
    Option(
        "num_gradient_servers",
        "int",
        "1",
        "number of trainers (not of servers)",
        (
            "PADDLE_TRAINERS_NUM",
            "PADDLE_INIT_NUM_GRADIENT_SERVERS",
            "OMPI_COMM_WORLD_SIZE",
            "PMI_SIZE",
        ),
    ),
    Option(
        "endpoints",
        "word",
        "",
        "host:port of every server of the job, in order",
        ("PADDLE_PSERVERS_IP_PORT_LIST",),
    ),
    Option("index", "int", "-1", "which of the endpoints this server is", ("PADDLE_PSERVER_ID",)),
    Option(
        "job",
        "word",
        "default",
        "the job's id; trainers of another job are refused",
        ("PADDLE_JOB_ID", "PADDOCK_JOB_ID"),
    ),
    Option(
        "data-dir",
        "word",
        "",
        "log and snapshots; without it the state dies with the process",
        ("PADDOCK_PS_DATA_DIR",),
    ),
    Option("load", "word", "", "a checkpoint to begin with, where there is no state yet", ()),
    Option(
        "ack",
        "word",
        "",
        "when a push is acknowledged: memory, log, disk or replica",
        ("PADDOCK_PS_ACK",),
    ),
    Option("snapshot-every", "size", "1G", "bytes of log after which a snapshot is written", ()),
    Option(
        "memory-limit",
        "size",
        "0",
        "bytes the tables may take; 0: 7/8 of this machine's or container's memory, divided by "
        "the job's servers on this host",
        ("PADDOCK_PS_MEMORY_LIMIT",),
    ),
    Option(
        "token-file",
        "word",
        "",
        "file with the secret that trainers must know",
        ("PADDOCK_PS_TOKEN_FILE",),
    ),
    Option("tls-cert", "word", "", "certificate, PEM", ("PADDOCK_PS_TLS_CERT",)),
    Option("tls-key", "word", "", "its key, PEM", ("PADDOCK_PS_TLS_KEY",)),
    Option(
        "tls-ca",
        "word",
        "",
        "who signed the certificates of the pair's other server and of its witness, PEM; "
        "else looked for in --tls-cert",
        ("PADDOCK_PS_TLS_CA",),
    ),
    Option(
        "trainer-timeout",
        "float",
        "60",
        "seconds of silence after which a trainer is expelled",
        ("PADDOCK_PS_TRAINER_TIMEOUT",),
    ),
    Option(
        "on-lost-trainer",
        "word",
        "fail",
        "fail, or rescale: go on with those that are left",
        ("PADDOCK_PS_ON_LOST_TRAINER",),
    ),
    Option(
        "end-with-trainers", "word", "no", "yes: end when every trainer has closed its client", ()
    ),
    Option(
        "replica-of",
        "word",
        "",
        "host:port of the primary that this server follows, until it takes its place",
        ("PADDOCK_PS_REPLICA_OF",),
    ),
    Option(
        "witness",
        "word",
        "",
        "host:port of a server, or paddock ps witness, that says which of a pair is primary",
        ("PADDOCK_PS_WITNESS",),
    ),
    Option(
        "advertise",
        "word",
        "",
        "host:port under which the other server of the pair and trainers reach this one",
        ("PADDOCK_PS_ADVERTISE",),
    ),
    Option(
        "promote",
        "word",
        "",
        "yes, once: this server's log is the right one, after the witness lost its files",
        (),
    ),
)
# Accepted, and said to do nothing: the flags of 2017 that have no meaning here.
IGNORED = {
    "ports_num": "one port serves all tables",
    "ports_num_for_sparse": "one port serves all tables",
    "nics": "say which address with --bind",
    "rdma_tcp": "TCP, and a Unix socket for trainers of the same machine",
    "pserver_num_threads": "one thread a connection; run more servers for more cores",
    "comment": "processes are owned by their pid, not found by a comment",
    "small_messages": "TCP_NODELAY is always set",
    "sock_send_buf_size": "buffers are set for the frames",
    "sock_recv_buf_size": "buffers are set for the frames",
    "log_period_server": "ask with paddock ps status",
    "async_lagged_ratio_min": "the trainer's strategy says how far ahead it may be: staleness=N",
    "async_lagged_ratio_default": "the trainer's strategy says how far ahead it may be",
    "loadsave_parameters_in_pserver": "servers always read and write their own share",
    "parameter_block_size": "shards are fixed",
    "parameter_block_size_for_sparse": "shards are fixed",
    "check_sparse_distribution_in_pserver": "keys are hashed over the shards",
    "check_sparse_distribution_batches": "keys are hashed over the shards",
    "check_sparse_distribution_ratio": "keys are hashed over the shards",
    "check_sparse_unbalance_degree": "keys are hashed over the shards",
    "log_barrier_abstract": "paddock ps status names who is waited for",
    "log_barrier_show_log": "paddock ps status names who is waited for",
    "log_barrier_lowest_nodes": "paddock ps status names who is waited for",
}


@dataclass(frozen=True, slots=True)
class Options:
    """What a server is asked to be. said: what to tell about flags; advertise: "" if unlisted.

    servers_here: of the job on this host, this one included.
    """

    port: int
    bind: str
    num_gradient_servers: int
    endpoints: tuple[str, ...]
    index: int
    job: str
    data_dir: str
    load: str
    ack: str
    snapshot_every: int
    memory_limit: int
    token_file: str
    tls_cert: str
    tls_key: str
    tls_ca: str
    trainer_timeout: float
    on_lost_trainer: str
    end_with_trainers: str
    replica_of: str
    witness: str
    advertise: str
    promote: str
    servers_here: int
    said: tuple[str, ...] = ()


def read_options(
    words: Sequence[str], env: Mapping[str, str], is_own: IsOwn = lambda host: False
) -> Options:
    """The options in the words of a command line and the environment. Raises UsageError.

    is_own: whether a host is this machine; asked where the list of servers leaves it open.

    >>> options = read_options(["--port=7164", "--ports_num=1", "--num_gradient_servers", "4"], {})
    >>> options.port, options.num_gradient_servers, options.bind, options.said
    (7164, 4, '127.0.0.1', ('--ports_num does nothing here: one port serves all tables',))
    """
    problems: list[Problem] = []
    given, said = _split(words, problems)
    texts = {}
    for option in OPTIONS:
        named = (env[name] for name in option.env if env.get(name))
        text = given.get(option.name)
        texts[option.name] = next(named, option.default) if text is None else text
    values = {o.name.replace("-", "_"): _value(o, texts[o.name], problems) for o in OPTIONS}
    endpoints = tuple(e.strip() for e in str(values["endpoints"]).split(",") if e.strip())
    values["endpoints"] = endpoints
    if not problems:
        _settle(values, env, is_own, problems)
        said += _warnings(values)
    if problems:
        raise UsageError.of(problems)
    assert {f.name for f in fields(Options)} == {*values, "said"}
    return Options(**values, said=tuple(said))  # type: ignore[arg-type]  # checked by _value


FLAGS_HINT = "paddock pserver --help"


def _split(words: Sequence[str], problems: list[Problem]) -> tuple[dict[str, str], list[str]]:
    """Flags by their own name, and what to say about those that do nothing."""
    known = {o.name.replace("-", "_"): o.name for o in OPTIONS}
    given: dict[str, str] = {}
    said: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, text = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("-") or (name not in known and name not in IGNORED):
            near = get_close_matches(name, [*known, *IGNORED], 1)
            hint = f"did you mean --{known.get(near[0], near[0])}?" if near else FLAGS_HINT
            problems.append(Problem(f"{word!r} is not a flag of paddock pserver", hint))
            if near and not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)  # Its value.
            continue
        if not equals:
            if not rest or rest[0].startswith("--"):
                if name not in IGNORED:
                    problems.append(Problem(f"{word} needs a value", "paddock pserver --help"))
                    continue
            else:
                text = rest.pop(0)
        if name in IGNORED:
            said.append(f"--{name} does nothing here: {IGNORED[name]}")
        else:
            given[known[name]] = text
    return given, said


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _value(option: Option, text: str, problems: list[Problem]) -> object:
    try:
        if option.kind == "int":
            return int(text)
        if option.kind == "float":
            return float(text)
        if option.kind == "size":
            number = text.upper().rstrip("B").rstrip("I")
            unit = number[-1:] if number[-1:].isalpha() else ""
            return int(float(number[: len(number) - len(unit)]) * _UNITS[unit])
    except (ValueError, KeyError):
        wanted = {"int": "a whole number", "float": "seconds", "size": "bytes, as in 512M or 8G"}
        problems.append(Problem(f"--{option.name} is {text!r}", wanted[option.kind]))
        return 0
    return text


def _settle(
    values: dict[str, object],
    env: Mapping[str, str],
    is_own: IsOwn,
    problems: list[Problem],
) -> None:
    """What follows from several options together."""

    def need(fact: bool, message: str, hint: str) -> None:
        if not fact:
            problems.append(Problem(message, hint))

    port, endpoints = values["port"], values["endpoints"]
    assert isinstance(port, int) and isinstance(endpoints, tuple)
    need(0 <= port < 65536, f"--port is {port}", "0 to 65535")
    values["ack"] = values["ack"] or ("log" if values["data_dir"] else "memory")
    need(values["ack"] in ACKS, f"--ack is {values['ack']!r}", "one of " + ", ".join(ACKS))
    need(
        values["ack"] not in ACKS or values["ack"] == "memory" or bool(values["data_dir"]),
        f"--ack {values['ack']} needs a log",
        "--data-dir DIR",
    )
    need(
        not (values["load"] and values["witness"]),
        "--load does not go with --witness",
        "paddock ps load, when the pair serves",
    )
    need(
        values["on_lost_trainer"] in ("fail", "rescale"),
        f"--on-lost-trainer is {values['on_lost_trainer']!r}",
        "fail or rescale",
    )
    need(
        values["end_with_trainers"] in ("yes", "no"),
        f"--end-with-trainers is {values['end_with_trainers']!r}",
        "yes or no",
    )
    trainers = values["num_gradient_servers"]
    assert isinstance(trainers, int)
    need(trainers >= 1, f"--num_gradient_servers is {trainers}", "the number of trainers")
    values["bind"] = bare(str(values["bind"]))
    advertised = split_endpoint(str(values["advertise"]))[0]
    names = {str(values["bind"]), advertised, env.get("POD_IP", LOOPBACK[0])} - {""}
    _settle_place(values, names, is_own, problems)
    index, mine = values["index"], ""
    assert isinstance(index, int)
    if index < len(endpoints):
        replica_of = str(values["replica_of"])
        mine = own_endpoint(endpoints[index], port, replica_of, names, is_own)
    # Explicitly listed in the job's endpoints: the launcher, or an operator, chose it.
    host = split_endpoint(mine)[0]
    values["servers_here"] = count_here(endpoints, host)
    values["bind"] = values["bind"] or host or ("0.0.0.0" if values["token_file"] else LOOPBACK[0])
    _settle_pair(values, mine, problems)
    need(
        not values["tls_key"] or bool(values["tls_cert"]),
        "--tls-key is set without --tls-cert",
        "both, or neither",
    )


def _settle_pair(values: dict[str, object], mine: str, problems: list[Problem]) -> None:
    """What a server of a pair needs. mine: its own endpoint, "" when it is not listed."""
    witness, replica_of = str(values["witness"]), str(values["replica_of"])
    for name in ("witness", "replica_of", "advertise"):
        text = str(values[name])
        if text and not split_endpoint(text)[1].isdigit():
            problems.append(Problem(f"--{name.replace('_', '-')} is {text!r}", "host:port"))
    if values["ack"] == "replica" and not witness:
        problems.append(Problem("--ack replica needs a witness", "--witness HOST:PORT"))
    if replica_of and not witness:
        problems.append(Problem("--replica-of needs a witness", "--witness HOST:PORT"))
    if witness and not values["data_dir"]:
        problems.append(Problem("a server of a pair needs a log", "--data-dir DIR"))
    if witness and witness == replica_of:
        problems.append(
            Problem(
                f"--witness and --replica-of are both {witness}",
                "the witness must not go down with the primary: another server, or paddock ps "
                "witness on a third machine",
            )
        )
    if values["promote"] not in ("", "yes"):
        problems.append(Problem(f"--promote is {values['promote']!r}", "yes, or leave it out"))
    elif values["promote"] and replica_of:
        problems.append(
            Problem(
                "--promote=yes and --replica-of exclude each other: is this server's log the right "
                f"one, or that of {replica_of}?",
                "for this server's leave out --replica-of, this once; else leave out --promote",
            )
        )
    elif values["promote"] and not witness:
        problems.append(
            Problem("--promote needs a witness: only a server of a pair is promoted",
                    "--witness HOST:PORT; a server alone needs no --promote")
        )  # fmt: skip
    values["advertise"] = values["advertise"] or mine
    if witness and values["bind"] in ("0.0.0.0", "::") and not values["advertise"]:
        problems.append(
            Problem(f"--bind {values['bind']} does not say how others reach this server",
                    "--advertise HOST:PORT")
        )  # fmt: skip


def _settle_place(
    values: dict[str, object], names: set[str], is_own: IsOwn, problems: list[Problem]
) -> None:
    """Which of the endpoints this server is."""
    endpoints, index, port = values["endpoints"], values["index"], values["port"]
    assert isinstance(endpoints, tuple) and isinstance(index, int) and isinstance(port, int)
    doubled = sorted({e for e in endpoints if endpoints.count(e) > 1})
    if doubled:
        problems.append(Problem(f"--endpoints lists {', '.join(doubled)} twice", "each once"))
    if not endpoints:
        if index > 0:
            problems.append(
                Problem(
                    f"--index is {index}, but no other server is known",
                    "--endpoints, or PADDLE_PSERVERS_IP_PORT_LIST: every server of the job",
                )
            )
        values["index"] = max(index, 0)
        return
    problem = None
    if index < 0:
        index, problem = find_index(endpoints, port, names, is_own)
    elif index >= len(endpoints):
        problem = Problem(f"--index {index} is not one of {','.join(endpoints)}", "from 0")
    if problem is not None:
        problems.append(problem)
    values["index"] = index


def _warnings(values: Mapping[str, object]) -> list[str]:
    """What is allowed, and seldom meant."""
    found = []
    if values["witness"] and values["ack"] != "replica":
        found.append(
            f"warning: --ack {values['ack']}: pushes do not wait for the other server of the pair, "
            "which may miss some and never takes over by itself; --ack replica has them wait"
        )
    if values["bind"] in ("0.0.0.0", "::") and not values["token_file"]:
        found.append(
            f"warning: --bind {values['bind']} without a token: who reaches this port can read and "
            "change every table, and end trainers; --token-file FILE, the same for trainers"
        )
    return found


def usage() -> str:
    """What ``paddock pserver --help`` prints below its first line."""
    lines = ["flags:"]
    for option in OPTIONS:
        default = f" (default {option.default})" if option.default not in ("", "0", "-1") else ""
        lines.append(f"  --{option.name:<22}{option.meaning}{default}")
        if option.env:
            lines.append(f"  {'':<24}else ${', $'.join(option.env)}")
    lines.append("accepted, without effect: " + ", ".join(IGNORED))
    return "\n".join(lines) + "\n"
