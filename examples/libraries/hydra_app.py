"""A Hydra app whose points run on several ranks: gradient descent on y = 3x + 1, by gloo.

python examples/libraries/hydra_app.py -m lr=0.1,0.5 hydra/launcher=paddock hydra.launcher.nproc=2
"""

import logging
from dataclasses import dataclass

import hydra
import torch
import torch.distributed as dist
from hydra.core.config_store import ConfigStore

log = logging.getLogger(__name__)


@dataclass
class Config:
    lr: float = 0.1
    steps: int = 200


ConfigStore.instance().store(name="config", node=Config)


@hydra.main(version_base="1.3", config_name="config", config_path=None)
def main(cfg: Config) -> float:
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    weights = torch.zeros(2)
    for _ in range(cfg.steps):
        x = torch.rand(64)
        inputs = torch.stack([x, torch.ones(64)], dim=1)
        gradient = inputs.T @ (inputs @ weights - (3 * x + 1)) / 64
        dist.all_reduce(gradient)
        weights -= cfg.lr * gradient / dist.get_world_size()
    loss = float((weights - torch.tensor([3.0, 1.0])).abs().max())
    log.info(
        "lr %g: error %.3f on rank %d of %d", cfg.lr, loss, dist.get_rank(), dist.get_world_size()
    )
    dist.destroy_process_group()
    return loss


if __name__ == "__main__":
    main()
