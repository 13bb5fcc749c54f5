"""Paddle, rpc mode: the four variables `paddle.distributed.rpc.init_rpc` reads.

Source: paddlepaddle 3.3.1, distributed/launch/controllers/rpc.py; reader: distributed/rpc/rpc.py.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.contracts import World
    from paddock.core.plan import Proc


def env(world: World, proc: Proc) -> dict[str, str]:
    """The rpc environment of one worker."""
    return {
        "PADDLE_MASTER_ENDPOINT": world.plan.paddle_master,
        "PADDLE_WORKER_ENDPOINT": proc.endpoint,
        "PADDLE_TRAINER_ID": str(proc.rank),
        "PADDLE_TRAINERS_NUM": str(world.size),
    }
