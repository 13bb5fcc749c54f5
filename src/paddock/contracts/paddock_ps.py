"""A parameter-server job whose processes do not get Paddle's contract (--framework torch, ...).

The variables that ``paddock.ps`` and ``paddock pserver`` read: the servers' addresses, and which
server or trainer this process is. The names and values are those of paddle_ps.py.
"""

from __future__ import annotations

from paddock.contracts import server_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.contracts import World
    from paddock.core.plan import Proc

TRAINING_ROLES = {"ps": "PSERVER", "worker": "TRAINER", "heter": "HETER_TRAINER"}


def env(world: World, proc: Proc) -> dict[str, str]:
    """The servers' addresses, and the role and index of this process."""
    found = {
        "PADDLE_PSERVERS_IP_PORT_LIST": world.server_endpoints,
        "PADDLE_TRAINERS_NUM": str(world.size),
        "PADDLE_PORT": str(proc.port),
        "POD_IP": proc.address,
        "TRAINING_ROLE": TRAINING_ROLES[proc.role],
        **server_id(proc),
    }
    if proc.role == "worker":
        found["PADDLE_TRAINER_ID"] = str(proc.rank)
    return found
