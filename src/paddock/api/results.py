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
    from paddock.backends.types import Culprit

RESULTS = "results"  # of ranks of a launched job, in its entry
RESULTS_THERE = "output/paddock-results"  # of ranks of a submitted job, in its directory


def read_results(run_id: str, place: str, entry: RegisteredJob | None) -> list[Any]:
    """Return what the function returned in each rank, by rank. place: the run's directory."""
    folder = _folder(place, entry)
    found: dict[tuple[int, int], dict[int, str]] = {}  # by attempt and size
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(".result"):
            parts = name.split(".")
            if len(parts) != 5:
                what = f"the results of {run_id} are of an older Paddock"
                raise PaddockError(what, hint=f"pickle.load reads the files of {folder}")
            number, role, rank, among, _ = parts
            if role == "worker":  # parameter servers return nothing
                found.setdefault((int(number), int(among)), {})[int(rank)] = name
    if not found:
        hint = "only functions do, paddock.launch(function), and not after sys.exit or exec"
        raise PaddockError(f"{run_id} returned no results", hint=hint)
    (_attempt, size), names = max(found.items())
    if missing := sorted({*range(size)} - {*names}):
        what = f"{run_id}: {ranks_text(missing)} exited without a result (os._exit, exec)"
        raise PaddockError(what, hint="let the function return in every rank")
    results = [_result_of(run_id, rank, os.path.join(folder, names[rank])) for rank in range(size)]
    with suppress(OSError):
        os.unlink(os.path.join(place, CALLER))
    return results


def raised(
    place: str, entry: RegisteredJob | None, attempt: int, culprit: Culprit
) -> dict[str, Any]:
    """Return what the function of a rank raised; nothing where that is not known."""
    import pickle

    try:
        folder = _folder(place, entry)
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
        for path in fetched.glob(f"output/**/{os.path.basename(RESULTS_THERE)}/*"):
            shutil.move(path, os.path.join(part, path.name))
        with suppress(OSError):  # another thread or process was faster
            os.rename(part, folder)
    return folder


def ignore(_told: object) -> None:
    """Show no progress."""
