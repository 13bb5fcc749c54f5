"""What only Slurm has in a job directory, which this machine and the nodes share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from paddock.backends import folder as shared
from paddock.backends.files.program import unpack_into
from paddock.backends.node.jobdir import INNER, last_error, read_json, write_json
from paddock.backends.slurm.parse import Told
from paddock.backends.slurm.script import ENV, env_file
from paddock.errors import PaddockError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from paddock.backends.backend import Say
    from paddock.backends.words import Submission


def make(submission: Submission, files: Mapping[str, str], folder: Path, say: Say) -> None:
    """Make the job directory with all that is in it. Raises UsageError, and then it is gone."""
    inner = folder / INNER
    secrets = {str(inner / "token"): submission.token}
    if text := env_file(submission):
        secrets[str(inner / ENV)] = text
    shared.make(submission, {**files, **secrets}, folder, say)
    try:
        unpack_into(inner / "program", has_ps=submission.has_ps)
    except OSError as error:
        shared.remove(folder)
        raise UsageError(f"the job directory {folder} cannot be filled: {error}") from error
    except BaseException:
        shared.remove(folder)
        raise


def note(folder: Path, cluster: str, number: str) -> None:
    """Remember which job of Slurm it is."""
    write_json(str(folder / INNER / "slurm.json"), {"cluster": cluster, "number": number})


def ask_to_stop(folder: Path) -> bool:
    """Leave word that the job is told to end, for the script. False if that is known already."""
    try:
        os.close(os.open(folder / INNER / "stop", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    except OSError as error:
        raise PaddockError(f"{folder}: {error.strerror}") from error
    return True


def forget_secrets(folder: Path) -> None:
    """Remove the key and the values of --env: no launcher of the job starts any more."""
    for name in ("token", ENV):
        (folder / INNER / name).unlink(missing_ok=True)


def told(folder: Path) -> dict[str, Told]:
    """What lies there, by array index; "" for a job that is no array."""
    is_stopped = (folder / INNER / "stop").exists()
    found = {p.name: _told(p, is_stopped=is_stopped) for p in tasks_of(folder)}
    return found or {"": _told(folder, is_stopped=is_stopped)}


def _told(folder: Path, *, is_stopped: bool) -> Told:
    inner = folder / INNER
    return Told(
        state=read_json(str(inner / "state.json")) or {},
        whole=read_json(str(inner / "status.json")) or {},
        verdict=read_json(str(inner / "verdict.json")) or {},
        is_stopped=is_stopped,
        last_error=last_error(str(folder)),
    )


def copy(folder: Path, cwd: Path, to: Path) -> list[str]:
    """Copy logs, of an array those of each, and output/ of the working directory."""
    copied = shared.copy(folder, cwd, to)
    for part in tasks_of(folder):
        shared.copy(part, part, to / part.name)
    return copied


def tasks_of(folder: Path) -> list[Path]:
    """The directories of those of an array that have begun."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in entries if path.name.isdecimal() and (path / INNER).is_dir()]
