"""The files that only Slurm has in a job directory, which this machine and the nodes share."""

from __future__ import annotations

import os
from pathlib import Path

from paddock.backends.node.jobdir import INNER, last_error, read_json, write_json
from paddock.backends.slurm.parse import JobDirectoryState
from paddock.backends.slurm.script import ENV
from paddock.errors import PaddockError

NOTE = "slurm.json"


def write_note(folder: Path, cluster: str, number: str) -> None:
    """Record the job's cluster and number in slurm.json."""
    write_json(str(folder / INNER / NOTE), {"cluster": cluster, "number": number})


def read_note(folder: Path) -> dict[str, str]:
    """Return the cluster and the number of a submitted job; "" for one that was not submitted."""
    row = read_json(str(folder / INNER / NOTE)) or {}
    return {name: str(row.get(name) or "") for name in ("cluster", "number")}


def ask_to_stop(folder: Path) -> bool:
    """Make the stop file, which tells the script that the job is to end.

    False if it exists already.
    """
    try:
        os.close(os.open(folder / INNER / "stop", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    except OSError as error:
        raise PaddockError(f"{folder}: {error.strerror}") from error
    return True


def forget_secrets(folder: Path) -> None:
    """Remove the key and the values of --env, once no launcher of the job starts any more."""
    for name in ("token", ENV):
        (folder / INNER / name).unlink(missing_ok=True)


def read_states(folder: Path) -> dict[str, JobDirectoryState]:
    """Return the state of a job directory by array index; "" for a job that is no array."""
    is_stopped = (folder / INNER / "stop").exists()
    found = {p.name: _read_state(p, is_stopped=is_stopped) for p in tasks_of(folder)}
    return found or {"": _read_state(folder, is_stopped=is_stopped)}


def _read_state(folder: Path, *, is_stopped: bool) -> JobDirectoryState:
    inner = folder / INNER
    return JobDirectoryState(
        state=read_json(str(inner / "state.json")) or {},
        whole=read_json(str(inner / "status.json")) or {},
        verdict=read_json(str(inner / "verdict.json")) or {},
        is_stopped=is_stopped,
        last_error=last_error(str(folder)),
    )


def tasks_of(folder: Path) -> list[Path]:
    """Return the directories of the tasks of an array that have begun."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in entries if path.name.isdecimal() and (path / INNER).is_dir()]
