"""Checkpoints of an online run: a base at the end of each day, a delta behind passes between.

DIR/step-.../      checkpoints of the servers; a delta has the rows changed since the one before
DIR/passes.jsonl   a line for each: day and pass, the checkpoint, base or delta
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paddock import ps
from paddock.ps.storage.checkpoint import CHAIN_MAX, latest_name, open_checkpoint
from paddock.rec.loop import CheckpointWriter
from paddock.rec.online.schedule import Online
from paddock.rec.saver import SaveSchedule
from paddock.rec.settings import Saving
from paddock.rec.worker_group import WorkerGroup, WorkerOffset

LOG = "passes.jsonl"


class PassSaveSchedule(SaveSchedule):
    """When a checkpoint of an online run is due: behind the passes that the schedule says."""

    def __init__(self, saving: Saving, now: Callable[[], float], online: Online) -> None:
        super().__init__(saving, now)
        self.online = online

    def after_epoch(self, epoch: int, epochs: int) -> bool:
        """epoch: the pass's number."""
        return self.online.is_due(epoch) or epoch + 1 == epochs


@dataclass(frozen=True)
class PassCheckpoints:
    """Worker 0 of a run with servers. inner: exports."""

    online: Online
    saving: Saving
    group: WorkerGroup
    client: ps.Client
    inner: CheckpointWriter

    def save(self, position: WorkerOffset) -> None:
        """A base behind the last pass of a day, after rows that are given up have gone; else a
        delta, where there is something that it can build on.
        """
        directory, number = self.saving.directory, position["epoch"]
        if directory is None:
            return
        is_base = self.online.is_last_of_day(number)
        if is_base:
            for name, known in self.client.traffic.tables.items():
                if isinstance(known.spec, ps.SparseSpec) and gives_up(known.spec.accessor):
                    self.client.shrink(name)
        mode = "full" if is_base or not can_build_on(directory) else "delta"
        name = self.group.save(directory, self.saving.keep, mode)
        told = {"pass": self.online.name(number), "checkpoint": name, "mode": mode}
        with open(os.path.join(directory, LOG), "a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")

    def export(self, epoch: int) -> None:
        """What a plain program loads."""
        self.inner.export(epoch)


def gives_up(accessor: ps.AccessorSpec) -> bool:
    """Whether shrink does anything.

    >>> gives_up(ps.AccessorSpec()), gives_up(ps.AccessorSpec(ttl_seconds=86400))
    (False, True)
    """
    return bool(accessor.ttl_seconds or accessor.delete_score or accessor.decay != 1.0)


def can_build_on(directory: str) -> bool:
    """Whether a delta may follow: there is a checkpoint, and its chain is not too long."""
    if latest_name(Path(directory)) is None:
        return False
    return len(list(open_checkpoint(directory).bases())) + 2 < CHAIN_MAX
