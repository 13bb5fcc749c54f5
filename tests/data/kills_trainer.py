"""A trainer as a process: python -c "from data.kills_trainer import main; main()" JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from data.shared_world import train
from paddock.ps.client.client import Client

BATCH_SECONDS = 0.004


def main() -> None:
    """Train all passes; facts: endpoints, folder, strategy, trainer, trainers, passes.

    How many records it was given is told in the file `given-TRAINER` beside the folder.
    """
    facts = json.loads(sys.argv[1])
    told = Path(facts["folder"]).parent / f"given-{facts['trainer']}"

    def before(given: int) -> None:
        told.write_text(str(given))
        time.sleep(BATCH_SECONDS)  # sleep: so that kills fall between any two of its actions

    with Client(
        facts["endpoints"],
        trainer=facts["trainer"],
        trainers=facts["trainers"],
        strategy=facts["strategy"],
        timeout=60.0,
    ) as ps:
        train(
            ps,
            Path(facts["folder"]),
            passes=facts["passes"],
            chunk_bytes=900,
            batch_size=20,
            before=before,
        )
