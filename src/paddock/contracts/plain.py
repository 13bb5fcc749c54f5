"""Plain programs: rank and size under Paddock's own names, whatever the framework.

The only contract that `--framework none` leaves; all others come on top of it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.contracts import World
    from paddock.core.plan import Proc


def env(world: World, proc: Proc) -> dict[str, str]:
    """The role, rank and size of this process; ranks count within the role.

    In a shell script: `input=part-$PADDOCK_RANK-of-$PADDOCK_WORLD_SIZE`.
    """
    sizes = {"worker": world.workers, "ps": world.servers, "heter": world.heters}
    return {
        "PADDOCK_ROLE": proc.role,
        "PADDOCK_RANK": str(proc.rank),
        "PADDOCK_WORLD_SIZE": str(len(sizes[proc.role])),
        "PADDOCK_LOCAL_RANK": str(proc.local_rank),
        "PADDOCK_LOCAL_SIZE": str(world.local_size(proc)),
        "PADDOCK_NODE_RANK": str(proc.node_rank),
        "PADDOCK_NNODES": str(world.plan.nnodes),
    }
