"""PyTorch: what torchrun sets for each worker, as `init_method="env://"` reads it.

Source: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables and
torch/distributed/elastic/agent/server/local_elastic_agent.py (_start_workers), torch 2.x.

TORCHELASTIC_USE_AGENT_STORE is left out on purpose: "True" tells rank 0 that a store already
listens on MASTER_PORT (torch/distributed/rendezvous.py, _torchelastic_use_agent_store). Ours does
not; rank 0 opens it itself.
"""

from __future__ import annotations

from paddock.core.endpoint import split_endpoint
from paddock.core.job import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.contracts import World
    from paddock.core.plan import Proc


def env(world: World, proc: Proc) -> dict[str, str]:
    """The torchrun environment of one worker; empty for other roles.

    MASTER_ADDR is bare, without brackets, also for IPv6, as torchrun writes it.
    """
    if proc.role != "worker":
        return {}
    plan = world.plan
    address, port = split_endpoint(plan.torch_master)
    rank, size = str(proc.rank), str(world.size)
    # Scripts name files by the run's id: two runs need two, as of torchrun --standalone. The job's
    # uid is the same on all nodes, in all attempts.
    run_id = plan.uid if plan.job_id == Job.job_id and plan.uid else plan.job_id
    return {
        "RANK": rank,
        "LOCAL_RANK": str(proc.local_rank),
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": str(world.local_size(proc)),
        "GROUP_RANK": str(world.worker_node_ranks[proc.node_rank]),
        "GROUP_WORLD_SIZE": str(len(world.worker_node_ranks)),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": str(plan.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(plan.max_restarts),
        "TORCHELASTIC_RUN_ID": run_id,
    }
