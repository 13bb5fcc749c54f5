"""Checkpoints of a run are written when they are due, each whole or not at all.

Without servers a worker writes the model and where it goes on into one directory, aside, which is
then renamed. With servers their own save() does that, in one cut: shards, dense part, positions.
An online run has a base at the end of each day and a delta behind passes between:

    DIR/step-.../      checkpoints of the servers; a delta has the rows changed since the one before
    DIR/passes.jsonl   a line for each: day and pass, the checkpoint, base or delta
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from paddock import ps
from paddock.data.manifest import aside
from paddock.errors import UsageError
from paddock.ps.storage.checkpoint import CHAIN_MAX, latest_name, open_checkpoint
from paddock.ps.storage.files import remove_tree, sync_files, sync_path, writing
from paddock.rec.learner import Learner
from paddock.rec.online import Online
from paddock.rec.settings import ModelKind, Saving, TrainingRun
from paddock.rec.worker_group import PsWorkers, WorkerOffset

LATEST = "LATEST"
ASIDE = ".paddock-"
DIGITS = "0123456789"
STATE = "rec.json"
LOG = "passes.jsonl"
MINUTE = 60.0
ALL = 1 << 30  # checkpoints kept


@dataclass
class SaveSchedule:
    """The schedule says when a checkpoint is due. now: seconds of a clock that never goes back.

    online: then one is due behind the passes that it says.
    """

    saving: Saving
    now: Callable[[], float]
    online: Online | None = None

    def __post_init__(self) -> None:
        self.saved_at = self.now()

    def after_step(self, step: int) -> bool:
        """step: batches trained so far."""
        saving = self.saving
        if saving.every_steps and step % saving.every_steps == 0:
            return True
        minutes = saving.every_minutes
        return minutes is not None and self.now() - self.saved_at >= minutes * MINUTE

    def after_epoch(self, epoch: int, epochs: int) -> bool:
        """epoch: the one that has ended, from 0; or the number of a pass."""
        is_last = epoch + 1 == epochs
        if self.online is not None:
            return self.online.is_due(epoch) or is_last
        every = self.saving.every_epochs
        return bool(every and (epoch + 1) % every == 0) or (self.saving.last and is_last)

    def saved(self) -> None:
        """The minutes begin anew."""
        self.saved_at = self.now()


def write(
    directory: str, name: str, keep: int, fill: Callable[[str], None], *, is_latest: bool = True
) -> str:
    """A checkpoint `directory/name`, made by `fill(aside)`; older than the newest `keep` go.

    A crash on the way leaves what was there, and LATEST names a whole one; is_latest: this one.
    Raises PaddockError where it cannot be written.
    """
    root = Path(directory)
    with writing("a checkpoint", root):
        root.mkdir(parents=True, exist_ok=True)
        target, old = root / name, _old(root / name)
        with aside(root, f"{ASIDE}{name}-", sweep=ASIDE) as filled:
            fill(str(filled))
            sync_files(filled)
            sync_path(filled)
            if target.exists():
                remove_tree(old)
                target.rename(old)
            filled.rename(target)
        remove_tree(old)
        if is_latest:
            pointer = root / f".{LATEST}.{os.getpid()}"
            pointer.write_text(name + "\n", encoding="utf-8")
            pointer.replace(root / LATEST)
        sync_path(root)
    # Others' directories may stand here: the user's, exported epochs.
    alike = re.compile(re.escape(name.rstrip(DIGITS)) + f"[{DIGITS}]+")
    kept = [one for one in names(directory) if alike.fullmatch(one)]
    for outlived in kept[: -max(1, keep)]:
        if outlived != name:
            remove_tree(root / outlived)
    return str(target)


def link(checkpoint: str, directory: str) -> None:
    """The model's files of a checkpoint in another directory, too, without a copy where it can."""
    for file in Path(checkpoint).iterdir():
        if file.name == STATE:
            continue
        try:
            os.link(file, Path(directory, file.name))
        except OSError:  # A file system without links.
            shutil.copy2(file, directory)


def _old(target: Path) -> Path:
    """The path at which a checkpoint waits while another one takes its name."""
    return target.with_name(f".{target.name}.old")


def names(directory: str) -> list[str]:
    """The checkpoints of a directory, the oldest first."""
    root = Path(directory)
    if not root.is_dir():
        return []
    found = [p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")]
    return [p.name for p in sorted(found, key=lambda p: (p.stat().st_mtime_ns, p.name))]


def has_latest(directory: str) -> bool:
    """True if a run has saved into a directory."""
    return Path(directory, LATEST).is_file()


def latest(path: str) -> str:
    """The checkpoint that a path means: itself, or what its LATEST names. Raises UsageError."""
    root = Path(path)
    if has_latest(path):
        root = root / (root / LATEST).read_text(encoding="utf-8").strip()
        root = root if root.is_dir() or not _old(root).is_dir() else _old(root)
    if not root.is_dir():
        raise UsageError(f"no checkpoint in {path!r}", hint="the directory that a run saved into")
    return str(root)


def write_state(directory: str, state: dict[str, Any]) -> None:
    """The state of a checkpoint besides its model: whose it is, and where its data goes on."""
    Path(directory, STATE).write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")


def read_state(directory: str) -> dict[str, Any]:
    """As written; empty where there is none. Raises UsageError."""
    path = Path(directory, STATE)
    if not path.is_file():
        return {}
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    if not isinstance(state, dict):
        raise UsageError(f"{path} is damaged: not an object")
    return state


class DiskCheckpoints:
    """Checkpoints of a run without servers: the model and where it goes on, in one directory.

    positions: of the first worker's position those of all, by number.
    """

    def __init__(
        self,
        run: TrainingRun,
        learner: Learner,
        positions: Callable[[WorkerOffset], dict[str, WorkerOffset]],
    ) -> None:
        self.run, self.learner, self.positions = run, learner, positions
        self._newest: str | None = None

    def save(self, position: WorkerOffset) -> None:
        """Whole, or not at all."""
        if self.run.saving.directory is None:
            return

        self.learner.refresh()  # Others may have learned since this worker's last batch.

        def fill(aside: str) -> None:
            self.learner.save(aside)
            write_state(aside, {"positions": self.positions(position)})

        saving = self.run.saving
        name = f"step-{position['step']:012d}"
        self._newest = write(str(saving.directory), name, saving.keep, fill)

    def export(self, epoch: int) -> None:
        """Writes the files that a program without Paddock loads."""
        directory = self.run.saving.export_directory
        if directory is None:
            return
        self.learner.refresh()
        is_apart = directory != self.run.saving.directory
        is_dygraph = self.run.contract is ModelKind.DYGRAPH
        name = str(epoch) if is_dygraph else f"epoch-{epoch:05d}"
        fill = self.learner.export
        if is_dygraph and not is_apart and self._newest is not None:
            # with_epochs: due when a checkpoint is, of the same two files.
            fill = partial(link, self._newest)
        write(directory, name, ALL, fill, is_latest=is_apart)


class ServerCheckpoints(DiskCheckpoints):
    """Checkpoints of a run with servers, by worker 0: one cut of shards, dense part, positions.

    online: a base behind the last pass of a day, after rows that are given up have gone; else a
    delta, where there is something that it can build on.
    """

    def __init__(
        self, run: TrainingRun, learner: Learner, group: PsWorkers, online: Online | None = None
    ) -> None:
        super().__init__(run, learner, lambda position: {})  # The servers have them.
        self.group, self.online = group, online

    def save(self, position: WorkerOffset) -> None:
        """The servers write their shards; each worker's position is of the same cut."""
        directory, keep = self.run.saving.directory, self.run.saving.keep
        if directory is None:
            return
        if self.online is None:
            self.group.save(directory, keep)
            return
        number = position["epoch"]
        is_base = self.online.is_last_of_day(number)
        if is_base:
            for name, spec in self.group.client.tables.items():
                if not isinstance(spec, ps.SparseSpec):
                    continue
                rows = spec.accessor  # A shrink removes or decays some, by any of these.
                if rows.ttl_seconds or rows.delete_score or rows.decay != 1.0:
                    self.group.client.shrink(name)
        can_build = latest_name(Path(directory)) is not None and (
            len(list(open_checkpoint(directory).bases())) + 2 < CHAIN_MAX
        )
        mode = "full" if is_base or not can_build else "delta"
        name = self.group.save(directory, keep, mode)
        told = {"pass": self.online.name(number), "checkpoint": name, "mode": mode}
        with open(os.path.join(directory, LOG), "a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def with_epochs(run: TrainingRun) -> TrainingRun:
    """A run of a PaddleRec 2.x model also writes <model_save_path>/<epoch>/rec.pdparams.

    There PaddleRec's infer looks for it, and model_init_path.
    """
    saving = run.saving
    here = (None, saving.directory)
    if run.contract is not ModelKind.DYGRAPH or saving.export_directory not in here:
        return run
    exports = replace(
        saving, export_directory=saving.directory, export_every_epochs=saving.every_epochs,
        export_last=saving.last,
    )  # fmt: skip
    return replace(run, saving=exports)
