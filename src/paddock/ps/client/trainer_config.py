"""A trainer's number and its servers' addresses, from arguments first, then the environment.

The environment comes in as a mapping. Every problem is told at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paddock.errors import Problem, UsageError
from paddock.ps.endpoint import split_endpoint

# PaddlePaddle's names (its fleet role maker); POD_INDEX as the operator's pods have it.
SERVERS = "PADDLE_PSERVERS_IP_PORT_LIST"
TRAINER = "PADDLE_TRAINER_ID"
TRAINERS = "PADDLE_TRAINERS_NUM"
JOBS = ("PADDLE_JOB_ID", "PADDOCK_JOB_ID")
TOKEN_FILE = "PADDOCK_PS_TOKEN_FILE"
TLS_CA = "PADDOCK_PS_TLS_CA"


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
    if not problems and not 0 <= number < max(total, 1):
        problems.append(
            Problem(
                f"trainer {number} of {total}",
                f"trainers are numbered from 0: {TRAINER} below {TRAINERS}",
            )
        )
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
    text = env.get(SERVERS, "") if given is None else given
    items = text.split(",") if isinstance(text, str) else list(text)
    items = [item.strip() for item in items if item.strip()]
    if given is None and env.get("TRAINING_ROLE") == "PSERVER":
        problems.append(
            Problem(
                "this process is a server (TRAINING_ROLE=PSERVER), and it started a Client",
                "paddock launch --server-script pserver, or paddock.ps.fleet for one script",
            )
        )
    elif not items:
        problems.append(
            Problem(
                f"no parameter server is named: {SERVERS} is not set and no endpoints were given",
                "start with paddock launch --server-num N, or Client('127.0.0.1:7164')",
            )
        )
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
        problems.append(
            Problem(
                f"server {', '.join(doubled)} is listed more than once",
                "each server once, in the same order for every trainer",
            )
        )
    return tuple(items)


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
