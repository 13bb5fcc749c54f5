"""init(**kwargs), as `paddle.init` of the v0.10 cluster: keywords first, then PADDLE_INIT_<NAME>.

Whoever names servers, or says that this is a cluster, gets a connection to servers or an error:
training alone by mistake, because a variable was not exported, is impossible.
Source: PaddlePaddle v0.10, doc/howto/cluster (cmd_argument); the corrected meanings of
trainer_count (threads of this trainer) and num_gradient_servers (number of trainers).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from paddock.errors import Problem, UsageError
from paddock.ps.client.trainer_config import SERVERS, TRAINER, TRAINERS, server_list

if TYPE_CHECKING:
    from paddock.ps.client.client import Client

PREFIX = "PADDLE_INIT_"
CLUSTER = "PADDLE_CLUSTER_TRAIN"
# Launchers that start several trainers, and how they say of how many this is one, and which.
SEVERAL = (TRAINERS, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
RANKS = (TRAINER, "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")

# What paddock acts on.
KNOWN: dict[str, type] = {
    "pservers": str, "port": int, "num_gradient_servers": int, "trainer_id": int, "local": bool,
}  # fmt: skip
# What concerns the framework, the network or the old trainer program: taken, and nothing done.
# One port serves all tables, dense and sparse, so the two numbers of ports have no meaning left.
ACCEPTED: dict[str, type] = {
    "ports_num": int, "ports_num_for_sparse": int, "use_gpu": bool, "trainer_count": int,
    "gpu_id": int, "nics": str, "rdma_tcp": str, "seed": int, "num_passes": int, "log_period": int,
    "dot_period": int, "test_period": int, "saving_period": int, "save_dir": str,
    "start_pass": int, "init_model_path": str, "comment": str,
}  # fmt: skip
FALSE = ("0", "false", "no", "off", "")
BOOLS = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(FALSE, False)}


class InitArguments(NamedTuple):
    """The arguments of init(). endpoints: host:port of each server; none means training alone."""

    endpoints: tuple[str, ...]
    trainer_id: int
    num_gradient_servers: int


def init(*, strategy: str = "async", timeout: float = 60.0, **kwargs: Any) -> Client | None:
    """The client of this trainer, connected; None when nothing asks for servers.

    Args:
        strategy: sync, half_async, async, geo or staleness, which v0.10 wrote in its optimizer.
        timeout: Seconds to wait for the servers.
        kwargs: The words of v0.10's paddle.init(); the environment fills in what is not said.

    Raises:
        UsageError: naming every unknown keyword and every wrong value.
        PaddockError: the servers do not answer.
    """
    settings = read_init_arguments(kwargs, os.environ)
    if not settings.endpoints:
        sys.stderr.write("paddock.ps: no pservers are named, this trainer trains alone\n")
        return None
    from paddock.ps.client.client import Client

    return Client(
        settings.endpoints,
        trainer=settings.trainer_id,
        trainers=settings.num_gradient_servers,
        strategy=strategy,
        timeout=timeout,
    )


def read_init_arguments(kwargs: Mapping[str, Any], env: Mapping[str, str]) -> InitArguments:
    """The settings from keywords and environment. Raises UsageError with all problems.

    >>> env = {"PADDLE_INIT_PSERVERS": "10.0.0.1,10.0.0.2", "PADDLE_INIT_TRAINER_ID": "1"}
    >>> read_init_arguments({"num_gradient_servers": 2}, env).endpoints
    ('10.0.0.1:7164', '10.0.0.2:7164')
    """
    problems: list[Problem] = []
    unknown = sorted(set(kwargs) - set(KNOWN) - set(ACCEPTED))
    if unknown:
        hint = "it knows " + ", ".join([*KNOWN, *ACCEPTED])
        problems.append(Problem(f"init() does not know {', '.join(unknown)}", hint))
    given = _gather(kwargs, env, problems)
    endpoints = () if problems else _endpoints(given, env, problems)
    trainer, total = _place(given, env, problems) if endpoints else (0, 1)
    if problems:
        raise UsageError.of(problems)
    return InitArguments(endpoints, trainer, total)


def _gather(
    kwargs: Mapping[str, Any], env: Mapping[str, str], problems: list[Problem]
) -> dict[str, Any]:
    """The arguments given, by name, of their types; keywords win."""
    found: dict[str, Any] = {}
    for name, kind in {**KNOWN, **ACCEPTED}.items():
        variable = PREFIX + name.upper()
        if name in kwargs:
            value, source = kwargs[name], f"init({name}=...)"
        elif variable in env:
            value, source = env[variable], variable
        else:
            continue
        try:
            text = str(value).strip().lower()
            if kind is str:
                is_list = isinstance(value, (list, tuple))
                found[name] = ",".join(map(str, value)) if is_list else str(value)
            else:
                found[name] = BOOLS[text] if kind is bool else int(text)
        except (ValueError, KeyError):
            word = {int: "a whole number", bool: "true or false", str: "text"}[kind]
            problems.append(Problem(f"{source} is {value!r}", word))
    return found


def _endpoints(
    given: Mapping[str, Any], env: Mapping[str, str], problems: list[Problem]
) -> tuple[str, ...]:
    """host:port of every server; empty to train alone, which nobody may do by mistake."""
    is_cluster = env.get(CLUSTER, "").strip().lower() not in FALSE
    items = server_list(given.get("pservers", ""))
    if given.get("local") is True:
        if items or is_cluster:
            text = f"local=1 beside {'pservers' if items else CLUSTER}"
            problems.append(Problem(text, "leave one of the two out: alone, or with servers"))
        return ()
    if "pservers" not in given and env.get(SERVERS, "").strip():
        return server_list(env[SERVERS])
    if not items:
        signs = [
            (is_cluster, CLUSTER),
            (given.get("local") is False, "local=0"),
            *((env.get(n, "").strip() not in ("", "0", "1"), f"{n}={env.get(n)}") for n in SEVERAL),
            ("pservers" in given, "pservers is empty"),
            ("num_gradient_servers" in given, "num_gradient_servers is set"),
        ]
        why = next((sign for is_there, sign in signs if is_there), None)
        if why is not None:
            text = f"this is training with others ({why}), but no pservers are named"
            hint = f"init(pservers=...), or export {PREFIX}PSERVERS; to train alone, local=1"
            problems.append(Problem(text, hint))
    port = given.get("port", 7164)
    has_port = re.compile(r".*:\d+").fullmatch
    return tuple(item if has_port(item) else f"{item}:{port}" for item in items)


def _place(
    given: Mapping[str, Any], env: Mapping[str, str], problems: list[Problem]
) -> tuple[int, int]:
    """Which trainer of how many: what was given, else what the first launcher that knows says."""
    trainer, total = given.get("trainer_id"), given.get("num_gradient_servers")
    for names in zip(RANKS, SEVERAL, strict=True):
        rank, size = (env.get(name, "").strip() for name in names)
        if rank.isdigit() or size.isdigit():
            if trainer is None and not rank.isdigit() and size != "1":
                text = f"{names[1]} is {size}, but {names[0]} does not say which this is"
                hint = f"init(trainer_id=...), or export {PREFIX}TRAINER_ID"
                problems.append(Problem(text, hint))
            trainer = int(rank) if trainer is None and rank.isdigit() else trainer
            total = int(size) if total is None and size.isdigit() else total
            break
    trainer, total = trainer or 0, 1 if total is None else total
    if not problems and not 0 <= trainer < total:
        text = f"trainer_id is {trainer}, num_gradient_servers is {total}"
        hint = "num_gradient_servers is the number of trainers; they count from 0"
        problems.append(Problem(text, hint))
    return trainer, total
