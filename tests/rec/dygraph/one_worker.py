"""One worker of a folder: python -m rec.dygraph.one_worker FOLDER BATCH STEPS STRATEGY [SAVE].

Trains so many batches and writes its losses as JSON. Where its servers are, the environment says.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from pathlib import Path

from paddock.ps import Client
from paddock.rec.learner import WorkerRank
from rec.dygraph.folders import run_of


def main(folder: str, batch: str, steps: str, strategy: str, save: str = "") -> None:
    """Train, save as worker 0, say the losses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Paddle 3.3 warns of a missing ccache when imported.
        from paddock.rec.dygraph.learner import load_model
    run = run_of(Path(folder), runner__train_batch_size=int(batch))
    assert run.reading is not None
    with Client(strategy=strategy, geo_step=4) as client, contextlib.redirect_stdout(sys.stderr):
        place = WorkerRank(client.place.trainer, client.place.trainers, 1)
        opened = load_model(run, client, place)
        losses: list[float] = []
        for item in opened.source(run.reading).open(0, None):
            if len(losses) < int(steps):
                opened.prefetch(item.batch)
                losses.append(opened.train(item.batch)["loss"])
        client.barrier("end")
        if save and place.worker == 0:
            opened.save(save)
        client.barrier("saved")
    sys.__stdout__.write(json.dumps(losses) + "\n")  # type: ignore[union-attr]  # is there


if __name__ == "__main__":
    main(*sys.argv[1:])
