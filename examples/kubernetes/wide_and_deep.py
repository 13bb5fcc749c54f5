"""Wide & deep click prediction: one program that is a server or a trainer, as its pod says.

The operator sets TRAINING_ROLE and the addresses; nothing is downloaded, the clicks are made up
(criteo_like.py). A server serves until the last trainer has ended. Trainer 0 prints the AUC for
20,000 examples that nobody trained on: 0.79 or better after 80 batches, 0.85 at most.

Without Kubernetes, two servers and two trainers on this machine:

    paddock launch --server-num 2 --worker-num 2 examples/kubernetes/wide_and_deep.py
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# In the repository the data and the model are in the folder next door, in the image beside this.
sys.path.append(str(Path(__file__).resolve().parent.parent / "ps"))

import criteo_like
from fleet_script import strategy_of

from paddock.ps import fleet

# A short look: 80 batches, some ten seconds.
SHORT = {"examples": 40_000, "epochs": 1, "batch": 512, "lr": 0.01, "vocab": 200}


def wide_and_deep(client: Any, options: argparse.Namespace) -> Any:
    """The model; Paddle is imported by trainers only."""
    from wide_deep_paddle import WideDeep

    return WideDeep(client, options)


def run(model: Callable[[Any, argparse.Namespace], Any], description: str) -> None:
    """Be what the environment says."""
    options = criteo_like.options(description, **SHORT)
    fleet.init()
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    import paddle
    from wide_deep_paddle import train

    paddle.seed(0)
    client = fleet.init_worker(strategy_of(options))
    train(client, model(client, options), options)
    fleet.stop_worker()


if __name__ == "__main__":
    run(wide_and_deep, __doc__)
