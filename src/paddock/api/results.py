"""The results and exceptions of the ranks of a run, read from the files that call.py wrote."""

from __future__ import annotations

import os
from contextlib import suppress

from paddock.api.errors import ranks_text
from paddock.errors import PaddockError
from paddock.local.runs.entry import CALLER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from paddock.backends.registry import RegisteredJob
    from paddock.backends.types import Culprit, JobStatus

RESULTS = "results"  # of ranks of a launched job, in its entry
RESULTS_THERE = "output/paddock-results"  # of ranks of a submitted job, in its directory


def read_results(run_id: str, place: str, entry: RegisteredJob | None) -> list[Any]:
    """Return what the function returned in each rank, by rank; of an array, by task and rank.

    place: the run's directory.
    """
    folder = _folder(place, entry)
    results: list[Any] = []
    for task in _tasks(folder) or [""]:
        of_whom = f"{run_id}, task {task}," if task else run_id
        results += _results_in(os.path.join(folder, task), of_whom)
    with suppress(OSError):
        os.unlink(os.path.join(place, CALLER))
    return results


def _tasks(folder: str) -> list[str]:
    """Return the names of the directories that the tasks of an array have here; [] without one."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted((name for name in names if name.isdecimal()), key=int)


def _results_in(folder: str, of_whom: str) -> list[Any]:
    """Return what the function returned in each rank of a job, or of a task of an array."""
    found: dict[tuple[int, int], dict[int, str]] = {}  # by attempt and size
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(".result"):
            parts = name.split(".")
            if len(parts) != 5:
                what = f"the results of {of_whom} are of an older Paddock"
                raise PaddockError(what, hint=f"pickle.load reads the files of {folder}")
            number, role, rank, among, _ = parts
            if role == "worker":  # parameter servers return nothing
                found.setdefault((int(number), int(among)), {})[int(rank)] = name
    if not found:
        hint = "only functions do, paddock.launch(function), and not after sys.exit or exec"
        raise PaddockError(f"{of_whom} returned no results", hint=hint)
    (_attempt, size), names = max(found.items())
    if missing := sorted({*range(size)} - {*names}):
        what = f"{of_whom}: {ranks_text(missing)} exited without a result (os._exit, exec)"
        raise PaddockError(what, hint="let the function return in every rank")
    return [_result_of(of_whom, rank, os.path.join(folder, names[rank])) for rank in range(size)]


def raised(
    place: str, entry: RegisteredJob | None, attempt: int, culprit: Culprit, task: str = ""
) -> dict[str, Any]:
    """Return what the function of a rank raised; nothing where that is not known.

    task: of an array, the number of the rank's task.
    """
    import pickle

    try:
        folder = os.path.join(_folder(place, entry), task)
        names = os.listdir(folder)
    except (OSError, PaddockError):
        return {}  # it was no function; its hosts cannot be reached
    own = f"{attempt}.{culprit.role}.{culprit.rank}."
    for name in names:
        if name.startswith(own) and name.endswith(".error"):
            row: dict[str, Any] = _load(os.path.join(folder, name))
            try:
                row["error"] = pickle.loads(row["error"])
            except Exception:  # noqa: BLE001  # its class cannot be imported here, for one
                row.pop("error", None)
            return row
    return {}


def failed_task(status: JobStatus) -> str:
    """Return the number of the first task of an array that failed, which the status tells of."""
    for node in status.nodes:
        word, _, number = node.name.partition(" ")
        if word == "task" and number and node.state in ("failed", "lost", "cancelled"):
            return number
    return ""


def _result_of(run_id: str, rank: int, path: str) -> Any:
    try:
        return _load(path)
    except Exception as error:  # a class that cannot be imported here; its own __setstate__
        what = f"the result of rank {rank} of {run_id} cannot be unpickled here"
        hint = "import what it needs, or return plain values"
        raise PaddockError(f"{what}: {type(error).__name__}: {error}", hint=hint) from error


def _load(path: str) -> Any:
    import pickle

    with open(path, "rb") as file:
        return pickle.load(file)


def _folder(place: str, entry: RegisteredJob | None) -> str:
    """Return the directory of the results; those of a submitted run are copied there first."""
    from paddock.backends.table import LAUNCH

    folder = os.path.join(place, RESULTS)
    if os.path.isdir(folder) or entry is None or entry.handle.backend == LAUNCH:
        return folder
    import shutil
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from paddock.backends.backend import find_backend

    with TemporaryDirectory(dir=place, prefix=".fetch-") as copy:
        fetched, part = Path(copy), os.path.join(copy, RESULTS)
        find_backend(entry.handle.backend).fetch(entry, fetched, ignore, ignore, [RESULTS_THERE])
        os.mkdir(part, 0o700)
        for task in _tasks(copy) or [""]:
            to = os.path.join(part, task)
            os.makedirs(to, 0o700, exist_ok=True)
            for path in (fetched / task).glob(f"output/**/{os.path.basename(RESULTS_THERE)}/*"):
                shutil.move(path, os.path.join(to, path.name))
        with suppress(OSError):  # another thread or process was faster
            os.rename(part, folder)
    return folder


def ignore(_told: object) -> None:
    """Show no progress."""
