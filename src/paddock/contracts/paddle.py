"""Paddle, collective mode: what `python -m paddle.distributed.launch` sets for each rank.

Source: paddlepaddle 3.3.1, distributed/launch/controllers/collective.py (build_pod_with_master),
measured; readers: distributed/parallel.py (ParallelEnv, init_parallel_env), the C++ store
(PADDLE_MASTER wins, else the first endpoint) and
fleet/base/role_maker.py (_collective_env).
"""

from __future__ import annotations

from paddock.contracts import SELECTED_FLAGS, selected_flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.contracts import World
    from paddock.core.plan import Proc


def env(world: World, proc: Proc) -> dict[str, str]:
    """The collective environment of one rank; empty for a process that is not a worker."""
    if proc.role != "worker":
        return {}
    rank, local_rank, size = str(proc.rank), str(proc.local_rank), str(world.size)
    found = {
        "PADDLE_MASTER": world.plan.paddle_master,
        "PADDLE_GLOBAL_SIZE": size,
        "PADDLE_TRAINERS_NUM": size,
        "PADDLE_LOCAL_SIZE": str(world.local_size(proc)),
        "PADDLE_GLOBAL_RANK": rank,
        "PADDLE_TRAINER_ID": rank,
        "PADDLE_LOCAL_RANK": local_rank,
        "PADDLE_RANK_IN_NODE": local_rank,
        "PADDLE_NNODES": str(world.plan.nnodes),
        "PADDLE_CURRENT_ENDPOINT": proc.endpoint,
        "PADDLE_TRAINER_ENDPOINTS": world.worker_endpoints,
        "PADDLE_AUTO_CLUSTER": "0",  # 3.x; args_envs.py, only the auto-tuner turns it on
    }
    found.update(device_env(world, proc))
    return found


def device_env(world: World, proc: Proc) -> dict[str, str]:
    """The device variables of one process, by kind.

    Without a device list the back end must be said to be gloo; for gpu and xpu it must not be
    said at all: Paddle then picks nccl or bkcl by its build.
    """
    if not proc.device_indices:
        return {"PADDLE_DISTRI_BACKEND": "gloo"}
    indices = ",".join(map(str, proc.device_indices))
    found = {
        selected_flag(proc.device_kind): indices,
        # Of the older launcher; role_maker.py still reads both.
        "PADDLE_LOCAL_DEVICE_IDS": indices,
        "PADDLE_WORLD_DEVICE_IDS": world.world_device_ids,
    }
    if proc.device_kind not in SELECTED_FLAGS:
        found["PADDLE_DISTRI_BACKEND"] = "xccl"
        found["PADDLE_XCCL_BACKEND"] = proc.device_kind
    return found
