"""Which process of a parameter-server job this is, from Paddle's environment. Pure.

Source: paddlepaddle 2.6 and 3.3, distributed/fleet/base/role_maker.py, _ps_env: TRAINING_ROLE,
PADDLE_PSERVERS_IP_PORT_LIST, PADDLE_TRAINERS_NUM, PADDLE_TRAINER_ID; a server is the one whose
POD_IP:PADDLE_PORT stands in the list. PADDLE_PSERVER_ID is PaddleCloud's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paddock.errors import Problem, UsageError
from paddock.ps.client.trainer_config import SERVERS, TRAINER, TRAINERS, read_number

ROLES = ("PSERVER", "TRAINER")


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
        shown = f"is {kind!r}" if kind else "is not set"
        problems.append(
            Problem(
                f"TRAINING_ROLE {shown}",
                "PSERVER or TRAINER; paddock launch --server-num N --worker-num M sets it",
            )
        )
    text = env.get(SERVERS, "")
    servers = tuple(item.strip() for item in text.split(",") if item.strip())
    if not servers:
        problems.append(Problem(f"{SERVERS} names no server", "host:port,host:port,..."))
    trainers = read_number(env, TRAINERS, problems)
    index = 0
    if kind == "TRAINER":
        index = read_number(env, TRAINER, problems)
        if not problems and index >= trainers:
            problems.append(
                Problem(
                    f"{TRAINER} is {index}, {TRAINERS} is {trainers}",
                    "trainers count from 0",
                )
            )
    elif kind == "PSERVER" and servers:
        index = _server_index(env, servers, problems)
    if problems:
        raise UsageError.of(problems)
    return ProcessRole(kind == "PSERVER", index, servers, trainers)


def _server_index(env: Mapping[str, str], servers: Sequence[str], problems: list[Problem]) -> int:
    """By address, else by the number given, else by a port that only one server has."""
    address, port = env.get("POD_IP", "").strip(), env.get("PADDLE_PORT", "").strip()
    if f"{address}:{port}" in servers:
        return list(servers).index(f"{address}:{port}")
    number = env.get("PADDLE_PSERVER_ID", "").strip()
    if number.isdigit() and int(number) < len(servers):
        return int(number)
    same_port = [i for i, item in enumerate(servers) if port and item.endswith(f":{port}")]
    if len(same_port) == 1 and not address:
        return same_port[0]
    problems.append(
        Problem(
            f"this server, POD_IP:PADDLE_PORT = {address or '?'}:{port or '?'}, is not in "
            f"{SERVERS} = {','.join(servers)}",
            "both must be as the list has them; or set PADDLE_PSERVER_ID",
        )
    )
    return 0
