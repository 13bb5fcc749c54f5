"""When a checkpoint is due, and how one on a disk becomes whole: written aside, then renamed.

With servers their own save() does the second half, in one cut: shards, dense part and positions.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.data.manifest import aside
from paddock.errors import UsageError
from paddock.ps.storage.files import remove_tree, sync_files, sync_path, writing
from paddock.rec.settings import Saving

LATEST = "LATEST"
ASIDE = ".paddock-"
DIGITS = "0123456789"
STATE = "rec.json"
MINUTE = 60.0


@dataclass
class SaveSchedule:
    """Whether a checkpoint is due. now: seconds of a clock that never goes back."""

    saving: Saving
    now: Callable[[], float]

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
        """epoch: the one that has ended, from 0."""
        every = self.saving.every_epochs
        if every and (epoch + 1) % every == 0:
            return True
        return self.saving.last and epoch + 1 == epochs

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
    """Where a checkpoint waits while another one takes its name."""
    return target.with_name(f".{target.name}.old")


def names(directory: str) -> list[str]:
    """The checkpoints of a directory, the oldest first."""
    root = Path(directory)
    if not root.is_dir():
        return []
    found = [p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")]
    return [p.name for p in sorted(found, key=lambda p: (p.stat().st_mtime_ns, p.name))]


def has_latest(directory: str) -> bool:
    """Whether a run has saved into a directory."""
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
    """What belongs to a checkpoint besides the model: whose it is, and where its data goes on."""
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
