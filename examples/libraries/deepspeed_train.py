"""Train with DeepSpeed; the `deepspeed` command is not needed.

    paddock launch --nproc-per-node 2 examples/libraries/deepspeed_train.py

Fits y = 3 x + 1 with ZeRO 1. Every 20 steps there is a checkpoint, and a restarted job goes on from
the last one.
"""

import os
import signal

import deepspeed
import torch

FOLDER = os.environ.get("CHECKPOINTS", "checkpoints-deepspeed")
ATTEMPT = os.environ.get("PADDOCK_ATTEMPT", "0")
CONFIG = {
    "train_micro_batch_size_per_gpu": 32,
    "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}


def main() -> None:
    """Train for 60 steps, less those of the last checkpoint."""
    torch.manual_seed(0)
    net = torch.nn.Linear(1, 1)
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=CONFIG)
    rank = engine.global_rank
    print(f"rank {rank} of {engine.world_size} is up", flush=True)
    found, _ = engine.load_checkpoint(FOLDER)
    if found:
        print(f"rank {rank} resumes from step {engine.global_steps}", flush=True)
    x = torch.linspace(-1, 1, 512).reshape(-1, 1)[rank :: engine.world_size]
    while engine.global_steps < 60:
        step = engine.global_steps
        if (rank, str(step), ATTEMPT) == (1, os.environ.get("FAIL_AT"), "0"):
            os.kill(os.getpid(), signal.SIGKILL)  # to see a restart
        batch = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(step))[:32]]
        loss = torch.nn.functional.mse_loss(engine(batch.to(engine.device)), 3 * batch + 1)
        engine.backward(loss)
        engine.step()
        if engine.global_steps % 20 == 0:
            engine.save_checkpoint(FOLDER)
    weights = " ".join(f"{w.item():.7f}" for w in net.parameters())
    print(f"rank {rank}: loss {loss.item():.5f}, weights {weights}", flush=True)


if __name__ == "__main__":
    main()
