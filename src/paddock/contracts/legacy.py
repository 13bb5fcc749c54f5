"""Paddle v0.10 and v2 API: PADDLE_INIT_*, each of which becomes a flag of `paddle.init`.

Source: Paddle 0.10, python/paddle/v2/__init__.py (every PADDLE_INIT_<NAME> becomes
--<name>=value); the documented set is that of its cluster guide. PADDLE_INIT_PSERVERS holds
addresses without ports and one port serves all, so servers on several ports cannot be said.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.contracts import World
    from paddock.core.plan import Proc


def env(world: World, proc: Proc) -> dict[str, str]:
    """The PADDLE_INIT_* variables of one process; heter trainers have none."""
    if proc.role == "heter":
        return {}
    found = {"PADDLE_INIT_NUM_GRADIENT_SERVERS": str(world.size)}
    if proc.role == "worker":
        found["PADDLE_INIT_TRAINER_ID"] = str(proc.rank)
        found["PADDLE_INIT_TRAINER_COUNT"] = "1"  # threads of this trainer
        found["PADDLE_INIT_USE_GPU"] = "True" if proc.device_kind in ("gpu", "dcu") else "False"
    ports = {server.port for server in world.servers}
    is_chosen = ports != {0} or len(world.servers) == 1  # two that are chosen later will differ
    if len(ports) == 1 and is_chosen:
        found["PADDLE_INIT_PSERVERS"] = ",".join([s.address for s in world.servers])
        found["PADDLE_INIT_PORT"] = str(world.servers[0].port)
        found["PADDLE_INIT_PORTS_NUM"] = "1"
        found["PADDLE_INIT_PORTS_NUM_FOR_SPARSE"] = "1"
        found["PADDLE_CLUSTER_TRAIN"] = "True"  # forces a non-local updater
    return found
