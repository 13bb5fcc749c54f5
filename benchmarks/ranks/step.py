"""A rank that trains a step with BENCH_FRAMEWORK, stamps it, and waits at the gate.

BENCH_CULPRIT dies when the gate is closed, once; the next attempt trains its step, too. Only the
usual imports: what is measured is what a user waits for.
"""

import os
import sys

from stamp import RANK, await_again, pass_gate, stamp

FRAMEWORK = os.environ["BENCH_FRAMEWORK"]
with open(os.environ["BENCH_STAMPS"], encoding="utf-8") as f:
    IS_AGAIN = "dead " in f.read()


def torch_ddp() -> None:
    """DistributedDataParallel over gloo."""
    import torch
    import torch.distributed as dist
    from torch import nn

    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()


def paddle_dp() -> None:
    """DataParallel over gloo."""
    import paddle
    import paddle.distributed as dist

    dist.init_parallel_env()
    model = paddle.DataParallel(paddle.nn.Linear(64, 64))
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    model(paddle.ones([8, 64])).sum().backward()
    optimizer.step()


def jax_psum() -> None:
    """A sum over all processes."""
    import jax
    import jax.numpy as jnp

    if "JAX_NUM_PROCESSES" in os.environ:
        jax.distributed.initialize()
    else:  # torchrun sets nothing that JAX looks for
        where = f"{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 1}"
        jax.distributed.initialize(where, int(os.environ["WORLD_SIZE"]), RANK)
    own = jnp.ones((jax.local_device_count(), 64))
    jax.pmap(lambda v: jax.lax.psum(v, "all"), axis_name="all")(own).block_until_ready()


if __name__ == "__main__":
    {"torch": torch_ddp, "paddle": paddle_dp, "jax": jax_psum}[FRAMEWORK]()
    if IS_AGAIN:
        stamp("again")
        await_again()  # a rank that ends takes its side of the connections along
    else:
        pass_gate("up")
        if int(os.environ.get("BENCH_CULPRIT", "-1")) == RANK:
            stamp("dead")
            os._exit(7)
        if "BENCH_CULPRIT" in os.environ:
            import signal

            signal.pause()  # it is ended because of the culprit
    sys.stdout.flush()
    os._exit(0)  # gloo's threads outlive their group, and may abort the interpreter's end
