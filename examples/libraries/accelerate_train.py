"""Train with Hugging Face Accelerate; `accelerate config` and `accelerate launch` are not needed.

    paddock launch --nproc-per-node 2 examples/libraries/accelerate_train.py

Fits y = 3 x + 1. Each epoch ends with a checkpoint, and a restarted job goes on from the last one.
"""

import os
import signal
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

FOLDER = Path(os.environ.get("CHECKPOINTS", "checkpoints-accelerate"))
ATTEMPT = os.environ.get("PADDOCK_ATTEMPT", "0")


def main() -> None:
    """Train for six epochs, less those of the last checkpoint."""
    loaders = DataLoaderConfiguration(use_seedable_sampler=True)  # an epoch's order is its number's
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=loaders)
    rank = accelerator.process_index
    print(f"rank {rank} of {accelerator.num_processes} is up", flush=True)
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 512).reshape(-1, 1)
    data = DataLoader(TensorDataset(x, 3 * x + 1), batch_size=32, shuffle=True)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)

    saved = sorted(FOLDER.glob("epoch-*"))
    if saved:
        accelerator.load_state(str(saved[-1]))
        print(f"rank {rank} resumes from {saved[-1].name}", flush=True)
    for epoch in range(len(saved), 6):
        data.set_epoch(epoch)
        for inputs, wanted in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), wanted)
            accelerator.backward(loss)  # gradients are averaged here
            optimizer.step()
        accelerator.save_state(str(FOLDER / "unfinished"))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:  # a folder with the final name is a whole checkpoint
            (FOLDER / "unfinished").rename(FOLDER / f"epoch-{epoch}")
        accelerator.wait_for_everyone()
        if (rank, str(epoch), ATTEMPT) == (1, os.environ.get("FAIL_AFTER"), "0"):
            os.kill(os.getpid(), signal.SIGKILL)  # to see a restart

    weights = " ".join(f"{w.item():.7f}" for w in model.parameters())
    print(
        f"rank {rank}: loss {accelerator.reduce(loss, 'mean'):.5f}, weights {weights}", flush=True
    )
    accelerator.end_training()


if __name__ == "__main__":
    main()
