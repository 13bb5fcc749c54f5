"""Paddle's environment variables: a process's role, a trainer's number, the servers' addresses.

Arguments come first, then the environment, which is a mapping. Every problem is told at once.
Source: paddlepaddle 2.6 and 3.3, distributed/fleet/base/role_maker.py, _ps_env: a server is the
one whose POD_IP:PADDLE_PORT stands in the list. PADDLE_PSERVER_ID is PaddleCloud's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paddock.errors import Problem, UsageError
from paddock.ps.endpoint import split_endpoint

SERVERS = "PADDLE_PSERVERS_IP_PORT_LIST"
TRAINER = "PADDLE_TRAINER_ID"
TRAINERS = "PADDLE_TRAINERS_NUM"
JOBS = ("PADDLE_JOB_ID", "PADDOCK_JOB_ID")
TOKEN_FILE = "PADDOCK_PS_TOKEN_FILE"
TLS_CA = "PADDOCK_PS_TLS_CA"
ROLES = ("PSERVER", "TRAINER")  # of TRAINING_ROLE


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """A trainer's place. endpoints: "host:port" of each server, "|" before a replica's.

    is_counted: somebody said how many trainers there are; otherwise it is a guess.
    """

    endpoints: tuple[str, ...]
    trainer: int
    trainers: int
    job: str
    token_file: str = ""
    tls_ca: str = ""
    is_counted: bool = False


def read_trainer_config(
    env: Mapping[str, str],
    endpoints: Sequence[str] | str | None,
    trainer: int | None,
    trainers: int | None,
    job: str | None,
    token_file: str | None,
    tls_ca: str | None,
) -> TrainerConfig:
    """The trainer's place. Raises UsageError with all that is missing or wrong.

    >>> env = {"PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:7164,10.0.0.2:7164"}
    >>> read_trainer_config(env, None, None, None, None, None, None).endpoints
    ('10.0.0.1:7164', '10.0.0.2:7164')
    """
    problems: list[Problem] = []
    found = _endpoints(env, endpoints, problems)
    number = read_number(env, TRAINER, problems, 0) if trainer is None else trainer
    total = trainers
    if total is None:
        total = read_number(env, TRAINERS, problems, max(1, number + 1))
    if trainer is None and total > 1 and not env.get(TRAINER, "").strip():
        text = f"this is one of {total} trainers, and {TRAINER} does not say which"
        hint = f"{TRAINER}=0 to {total - 1}, another one in each; paddock launch sets it"
        problems.append(Problem(text, hint))
    if not problems and not 0 <= number < max(total, 1):
        hint = f"trainers are numbered from 0: {TRAINER} below {TRAINERS}"
        problems.append(Problem(f"trainer {number} of {total}", hint))
    if problems:
        raise UsageError.of(problems)
    return TrainerConfig(
        found,
        number,
        total,
        job or next((env[name] for name in JOBS if env.get(name)), "default"),
        env.get(TOKEN_FILE, "") if token_file is None else token_file,
        env.get(TLS_CA, "") if tls_ca is None else tls_ca,
        trainers is not None or bool(env.get(TRAINERS, "").strip()),
    )


def _endpoints(
    env: Mapping[str, str], given: Sequence[str] | str | None, problems: list[Problem]
) -> tuple[str, ...]:
    items = server_list(env.get(SERVERS, "") if given is None else given)
    if given is None and env.get("TRAINING_ROLE") == "PSERVER":
        text = "this process is a server (TRAINING_ROLE=PSERVER), and it started a Client"
        hint = "paddock launch --server-script pserver, or paddock.ps.fleet for one script"
        problems.append(Problem(text, hint))
    elif not items:
        text = f"no parameter server is named: {SERVERS} is not set and no endpoints were given"
        hint = "start with paddock launch --server-num N, or Client('127.0.0.1:7164')"
        problems.append(Problem(text, hint))
    for item in items:
        if any(sign.isspace() or sign == ";" for sign in item):
            hint = "separate servers by commas: host:port,host:port"
            problems.append(Problem(f"server endpoint {item!r}", hint))
            continue
        for one in item.split("|"):
            host, port = split_endpoint(one)
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                problems.append(Problem(f"server endpoint {one!r}", "host:port, port 1 to 65535"))
    doubled = sorted({item for item in items if items.count(item) > 1})
    if doubled:
        text = f"server {', '.join(doubled)} is listed more than once"
        problems.append(Problem(text, "each server once, in the same order for every trainer"))
    return items


def server_list(servers: Sequence[str] | str) -> tuple[str, ...]:
    """The servers of a text with commas, or of a list, without blanks."""
    items = servers.split(",") if isinstance(servers, str) else servers
    return tuple(item.strip() for item in items if item.strip())


def read_number(
    env: Mapping[str, str], name: str, problems: list[Problem], otherwise: int | None = None
) -> int:
    """The whole number in a variable, else this one; a problem where there is neither."""
    text = env.get(name, "").strip()
    if text.isdigit():
        return int(text)
    if text or otherwise is None:
        shown = f"{name} is {text!r}" if text else f"{name} is not set"
        problems.append(Problem(shown, "a whole number"))
    return otherwise or 0


@dataclass(frozen=True, slots=True)
class ProcessRole:
    """A process of the job. index: among the servers, or among the trainers.

    Takes the place of Paddle's UserDefinedRoleMaker: give one to fleet.init() where there is no
    environment.
    """

    is_server: bool
    index: int
    server_endpoints: tuple[str, ...]
    worker_num: int

    @property
    def endpoint(self) -> str:
        """host:port of this server."""
        return self.server_endpoints[self.index]


def read_role(env: Mapping[str, str]) -> ProcessRole:
    """The role that the environment gives. Raises UsageError with everything missing or wrong.

    >>> env = {"TRAINING_ROLE": "PSERVER", "PADDLE_PSERVERS_IP_PORT_LIST": "h0:8000,h1:8000"}
    >>> env.update(POD_IP="h1", PADDLE_PORT="8000", PADDLE_TRAINERS_NUM="4")
    >>> read_role(env).index
    1
    """
    problems: list[Problem] = []
    kind = env.get("TRAINING_ROLE", "").strip().upper()
    if kind not in ROLES:
        text = f"TRAINING_ROLE is {kind!r}" if kind else "TRAINING_ROLE is not set"
        hint = "PSERVER or TRAINER; paddock launch --server-num N --worker-num M sets it"
        problems.append(Problem(text, hint))
    servers = server_list(env.get(SERVERS, ""))
    if not servers:
        problems.append(Problem(f"{SERVERS} names no server", "host:port,host:port,..."))
    trainers = read_number(env, TRAINERS, problems)
    index = 0
    if kind == "TRAINER":
        index = read_number(env, TRAINER, problems)
        if not problems and index >= trainers:
            text = f"{TRAINER} is {index}, {TRAINERS} is {trainers}"
            problems.append(Problem(text, "trainers count from 0"))
    elif kind == "PSERVER" and servers:
        index = _server_index(env, servers, problems)
    if problems:
        raise UsageError.of(problems)
    return ProcessRole(kind == "PSERVER", index, servers, trainers)


def _server_index(env: Mapping[str, str], servers: tuple[str, ...], problems: list[Problem]) -> int:
    """By address, else by the number given, else by a port that only one server has."""
    address, port = env.get("POD_IP", "").strip(), env.get("PADDLE_PORT", "").strip()
    if f"{address}:{port}" in servers:
        return servers.index(f"{address}:{port}")
    number = env.get("PADDLE_PSERVER_ID", "").strip()
    if number.isdigit() and int(number) < len(servers):
        return int(number)
    same_port = [i for i, item in enumerate(servers) if port and item.endswith(f":{port}")]
    if len(same_port) == 1 and not address:
        return same_port[0]
    here = f"{address or '?'}:{port or '?'}"
    text = f"this server, POD_IP:PADDLE_PORT = {here}, is not in {SERVERS} = {','.join(servers)}"
    hint = "both must be as the list has them; or set PADDLE_PSERVER_ID"
    problems.append(Problem(text, hint))
    return 0
