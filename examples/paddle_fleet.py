"""Data-parallel training through Paddle's fleet interface (collective mode).

    paddock launch --nproc-per-node 2 examples/paddle_fleet.py

Fits y = 3 x + 1 from points of which each rank sees its own half; both ranks end with the same
weights, which rank 0 prints.
"""

import numpy as np
import paddle
from paddle import nn
from paddle.distributed import fleet


def main() -> None:
    """Fit a line together with the other ranks."""
    strategy = fleet.DistributedStrategy()
    fleet.init(is_collective=True, strategy=strategy)
    rank, world_size = fleet.worker_index(), fleet.worker_num()
    print(f"rank {rank} of {world_size} is up", flush=True)
    paddle.seed(0)

    x = np.linspace(-1, 1, 256, dtype="float32").reshape(-1, 1)[rank::world_size]
    inputs, targets = paddle.to_tensor(x), paddle.to_tensor(3 * x + 1)

    model = fleet.distributed_model(nn.Linear(1, 1))
    optimizer = fleet.distributed_optimizer(
        paddle.optimizer.SGD(learning_rate=0.5, parameters=model.parameters())
    )
    for _ in range(100):
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()

    weight, bias = (float(p.numpy().item()) for p in model.parameters())
    print(f"rank {rank} fitted y = {weight:.3f} x + {bias:.3f}", flush=True)


if __name__ == "__main__":
    main()
