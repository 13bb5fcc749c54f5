"""What Paddle itself makes of a pod's environment: its readers, in as many lines as they decide in.

Source: paddlepaddle 3.3.1: distributed/fleet/base/role_maker.py (_ps_env, _gloo_init),
distributed/ps/the_one_ps.py (split of an endpoint at its colon), distributed/launch/plugins
(collective_compatible, rewrite_host_ip) and launch/context/args_envs.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class PaddleRole:
    """A process as role_maker.py sees it. index: of a heter trainer it comes after the workers."""

    kind: str
    index: int
    servers: tuple[str, ...]
    workers: tuple[str, ...]
    heters: tuple[str, ...]


def split(endpoint: str) -> tuple[str, int]:
    """the_one_ps.py: host, port = ep.split(":"). Raises ValueError for an IPv6 address."""
    host, port = endpoint.split(":")
    return host, int(port)


def ps_role(env: Mapping[str, str]) -> PaddleRole:
    """_ps_env. Raises KeyError or ValueError where Paddle would."""
    servers = tuple(env["PADDLE_PSERVERS_IP_PORT_LIST"].split(","))
    workers = tuple(env["PADDLE_TRAINER_ENDPOINTS"].split(","))
    heters = tuple(filter(None, env.get("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST", "").split(",")))
    for endpoint in (*servers, *workers, *heters):
        split(endpoint)
    kind = env["TRAINING_ROLE"]
    own = ":".join([env["POD_IP"], env["PADDLE_PORT"]])
    if heters:
        _check_neighbours(env, kind)
    if kind == "TRAINER":
        index = int(env["PADDLE_TRAINER_ID"])
    elif kind == "PSERVER":
        index = servers.index(own)
    else:
        assert kind == "HETER_TRAINER", kind
        assert env["HETER_DEVICE_TYPE"] in ("cpu", "gpu", "xpu")
        index = heters.index(own) + int(env["PADDLE_TRAINERS_NUM"])
    return PaddleRole(kind, index, servers, workers, heters)


def _check_neighbours(env: Mapping[str, str], kind: str) -> None:
    if env.get("PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST", "") == "":
        assert kind in ("TRAINER", "PSERVER")
    if env.get("PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST", "") == "":
        assert kind in ("HETER_TRAINER", "PSERVER")
    if kind != "PSERVER":
        stages = [int(x) for x in re.findall(r"\d+", env["PADDLE_STAGE_TRAINERS_NUM"])]
        assert len(stages) == int(env["STAGE_NUM"])
        assert 1 <= int(env["STAGE_ID"]) <= int(env["STAGE_NUM"])


def gloo_address(env: Mapping[str, str]) -> tuple[str, int] | None:
    """_gloo_init of a job with servers; None when gloo is off."""
    if int(env.get("PADDLE_WITH_GLOO", "0")) not in (1, 2):
        return None
    assert env["PADDLE_GLOO_RENDEZVOUS"] == "3"
    return split(env["PADDLE_GLOO_HTTP_ENDPOINT"])


@dataclass(frozen=True)
class Launch:
    """What Paddle's launcher in a pod takes for its arguments."""

    master: str
    nnodes: int
    rank: int


def launcher(env: Mapping[str, str]) -> Launch:
    """args_envs.py, then the plugin collective_compatible, which wins."""
    master, nnodes = env["PADDLE_MASTER"], int(env["PADDLE_NNODES"])
    if "PADDLE_TRAINER_ENDPOINTS" in env:
        endpoints = env["PADDLE_TRAINER_ENDPOINTS"].split(",")
        master = endpoints[0]
        nnodes = len({e.split(":")[0] for e in endpoints})
    return Launch(master, nnodes, int(env["PADDLE_RANK"]))
