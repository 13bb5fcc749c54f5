"""Train with Lightning, which takes Paddock's ranks for those of torchrun.

    paddock launch --nproc-per-node 2 examples/libraries/lightning_train.py

Fits y = 3 x + 1. Each epoch ends with a checkpoint, and a restarted job goes on from the last one.
"""

import os
import signal

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

FOLDER = os.environ.get("CHECKPOINTS", "checkpoints-lightning")
ATTEMPT = os.environ.get("PADDOCK_ATTEMPT", "0")


class Line(L.LightningModule):
    """y = a x + b."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, number):
        inputs, wanted = batch
        loss = torch.nn.functional.mse_loss(self.layer(inputs), wanted)
        self.log("loss", loss, sync_dist=True, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)

    def on_train_epoch_start(self):
        rank, epoch = self.global_rank, self.current_epoch
        if epoch == self.first_epoch > 0:
            print(f"rank {rank} resumes at epoch {epoch}", flush=True)
        if (rank, str(epoch), ATTEMPT) == (1, os.environ.get("FAIL_AT"), "0"):
            os.kill(os.getpid(), signal.SIGKILL)  # to see a restart

    def on_train_start(self):
        self.first_epoch = self.current_epoch


def main() -> None:
    """Train for six epochs, less those of the last checkpoint."""
    L.seed_everything(0)
    x = torch.linspace(-1, 1, 512).reshape(-1, 1)
    data = DataLoader(TensorDataset(x, 3 * x + 1), batch_size=32, shuffle=True)
    model = Line()
    trainer = L.Trainer(
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
        strategy="ddp", max_epochs=6, callbacks=[ModelCheckpoint(FOLDER, save_last=True)],
        logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    print(f"rank {trainer.global_rank} of {trainer.world_size} is up", flush=True)
    trainer.fit(model, data, ckpt_path="last")
    loss = trainer.callback_metrics["loss"]
    weights = " ".join(f"{w.item():.7f}" for w in model.parameters())
    print(f"rank {trainer.global_rank}: loss {loss:.5f}, weights {weights}", flush=True)


if __name__ == "__main__":
    main()
