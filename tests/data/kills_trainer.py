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
    """Train all passes; facts: endpoints, folder, strategy, trainer, trainers, passes."""
    facts = json.loads(sys.argv[1])
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
            # sleep: so that kills fall between any two of its actions, and not at the end
            before=lambda given: time.sleep(BATCH_SECONDS),
        )
