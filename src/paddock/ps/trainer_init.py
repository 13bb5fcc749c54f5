"""init(**kwargs), as `paddle.init` of the v0.10 cluster: keywords first, then PADDLE_INIT_<NAME>.

Whoever names servers, or says that this is a cluster, gets a connection to servers or an error:
training alone by mistake, because a variable was not exported, is impossible.
Source: PaddlePaddle v0.10, doc/howto/cluster (cmd_argument); the corrected meanings of
trainer_count (threads of this trainer) and num_gradient_servers (number of trainers).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.errors import Problem, UsageError

if TYPE_CHECKING:
    from paddock.ps.client.client import Client

PREFIX = "PADDLE_INIT_"
CLUSTER = "PADDLE_CLUSTER_TRAIN"
SERVER_LIST = "PADDLE_PSERVERS_IP_PORT_LIST"
# Launchers that start several trainers, and how they say of how many this is one, and which.
SEVERAL = ("PADDLE_TRAINERS_NUM", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
RANKS = ("PADDLE_TRAINER_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")

# name -> (type, default). What paddock acts on.
KNOWN: dict[str, tuple[type, Any]] = {
    "pservers": (str, ""),
    "port": (int, 7164),
    "num_gradient_servers": (int, 1),
    "trainer_id": (int, 0),
    "local": (bool, None),
}
# What concerns the framework, the network or the old trainer program: taken, and nothing done.
# One port serves all tables, dense and sparse, so the two numbers of ports have no meaning left.
ACCEPTED: dict[str, type] = {
    "ports_num": int,
    "ports_num_for_sparse": int,
    "use_gpu": bool,
    "trainer_count": int,
    "gpu_id": int,
    "nics": str,
    "rdma_tcp": str,
    "seed": int,
    "num_passes": int,
    "log_period": int,
    "dot_period": int,
    "test_period": int,
    "saving_period": int,
    "save_dir": str,
    "start_pass": int,
    "init_model_path": str,
    "comment": str,
}
TRUE, FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True)
class Settings:
    """What init() was told. endpoints: host:port of each server; none means training alone."""

    endpoints: tuple[str, ...]
    trainer_id: int
    num_gradient_servers: int
    accepted: dict[str, Any]


def init(*, strategy: str = "async", timeout: float = 60.0, **kwargs: Any) -> Client | None:
    """The client of this trainer, connected; None when nothing asks for servers.

    strategy: sync, half_async, async, geo or staleness, which v0.10 wrote in its optimizer.
    timeout: seconds to wait for the servers.

    Raises: UsageError naming every unknown keyword and every wrong value; PaddockError when the
    servers do not answer.
    """
    settings = read_settings(kwargs, os.environ)
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


def read_settings(kwargs: Mapping[str, Any], env: Mapping[str, str]) -> Settings:
    """The settings from keywords and environment. Raises UsageError with all problems.

    >>> env = {"PADDLE_INIT_PSERVERS": "10.0.0.1,10.0.0.2", "PADDLE_INIT_TRAINER_ID": "1"}
    >>> read_settings({"num_gradient_servers": 2}, env).endpoints
    ('10.0.0.1:7164', '10.0.0.2:7164')
    """
    problems: list[Problem] = []
    unknown = sorted(set(kwargs) - set(KNOWN) - set(ACCEPTED))
    if unknown:
        problems.append(
            Problem(
                f"init() does not know {', '.join(unknown)}",
                "it knows " + ", ".join([*KNOWN, *ACCEPTED]),
            )
        )
    given = _gather(kwargs, env, problems)
    values = {name: given.get(name, default) for name, (_, default) in KNOWN.items()}
    endpoints = () if problems else _endpoints(values, given, env, problems)
    trainer, total = values["trainer_id"], values["num_gradient_servers"]
    if endpoints and not problems:
        trainer, total = _place(given, env, problems)
        if not problems and not 0 <= trainer < total:
            problems.append(
                Problem(
                    f"trainer_id is {trainer}, num_gradient_servers is {total}",
                    "num_gradient_servers is the number of trainers; they count from 0",
                )
            )
    if problems:
        raise UsageError.of(problems)
    accepted = {name: value for name, value in given.items() if name in ACCEPTED}
    return Settings(endpoints, trainer, total, accepted)


def _gather(
    kwargs: Mapping[str, Any], env: Mapping[str, str], problems: list[Problem]
) -> dict[str, Any]:
    """What was given, by name, of its type; keywords win."""
    types = {**{name: kind for name, (kind, _) in KNOWN.items()}, **ACCEPTED}
    found: dict[str, Any] = {}
    for name, kind in types.items():
        variable = PREFIX + name.upper()
        if name in kwargs:
            value, source = kwargs[name], f"init({name}=...)"
        elif variable in env:
            value, source = env[variable], variable
        else:
            continue
        try:
            found[name] = _convert(value, kind)
        except ValueError:
            word = {int: "a whole number", bool: "true or false", str: "text"}[kind]
            problems.append(Problem(f"{source} is {value!r}", word))
    return found


def _convert(value: Any, kind: type) -> Any:
    if kind is str:
        return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    text = str(value).strip().lower()
    if kind is bool:
        if text in TRUE:
            return True
        if text in FALSE:
            return False
        raise ValueError(text)
    return int(text)


def _endpoints(
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    env: Mapping[str, str],
    problems: list[Problem],
) -> tuple[str, ...]:
    """host:port of every server; empty to train alone, which nobody may do by mistake."""
    cluster = env.get(CLUSTER, "").strip().lower() not in FALSE or values["local"] is False
    items = [item.strip() for item in values["pservers"].split(",") if item.strip()]
    if values["local"] is True:
        if items or cluster:
            problems.append(
                Problem(
                    f"local=1 beside {'pservers' if items else CLUSTER}",
                    "leave one of the two out: alone, or with servers",
                )
            )
        return ()
    if "pservers" not in given and env.get(SERVER_LIST, "").strip():
        return tuple(env[SERVER_LIST].split(","))
    if not items:
        several = [n for n in SEVERAL if env.get(n, "").strip() not in ("", "0", "1")]
        why = CLUSTER if cluster and CLUSTER in env else "local=0" if cluster else ""
        why = why or (f"{several[0]}={env[several[0]]}" if several else "")
        if "pservers" in given or "num_gradient_servers" in given:
            why = (
                why or "pservers is empty" * ("pservers" in given) or "num_gradient_servers is set"
            )
        if why:
            problems.append(
                Problem(
                    f"this is training with others ({why}), but no pservers are named",
                    f"init(pservers=...), or export {PREFIX}PSERVERS; to train alone, local=1",
                )
            )
        return ()
    return tuple(
        item if item.rpartition(":")[2].isdigit() and ":" in item else f"{item}:{values['port']}"
        for item in items
    )


def _place(
    given: Mapping[str, Any], env: Mapping[str, str], problems: list[Problem]
) -> tuple[int, int]:
    """Which trainer of how many: what was given, else what the first launcher that knows says."""
    trainer, total = "", ""
    for rank_name, size_name in zip(RANKS, SEVERAL, strict=True):
        trainer, total = env.get(rank_name, "").strip(), env.get(size_name, "").strip()
        if trainer.isdigit() or total.isdigit():
            if "trainer_id" not in given and not trainer.isdigit() and total != "1":
                problems.append(
                    Problem(
                        f"{size_name} is {total}, but {rank_name} does not say which this is",
                        f"init(trainer_id=...), or export {PREFIX}TRAINER_ID",
                    )
                )
            break
    return (
        given.get("trainer_id", int(trainer) if trainer.isdigit() else 0),
        given.get("num_gradient_servers", int(total) if total.isdigit() else 1),
    )
