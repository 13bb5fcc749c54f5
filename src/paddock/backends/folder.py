"""A job's directory on this machine, or on a file system that it shares with the hosts."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.backends.node import names
from paddock.backends.node.jobdir import INNER, read_json
from paddock.backends.registry import IdTaken
from paddock.backends.words import DEFAULT_ROOT, FETCHED
from paddock.errors import PaddockError, Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddock.backends.backend import Say
    from paddock.backends.words import Site, Submission

HAND_OVER_SECONDS = 300.0  # longer than any queue's command may take
SHOWN_MAX = 8  # files that a fetch could not bring


def root_of(site: Site) -> Path:
    """The directory that holds the jobs' directories."""
    return Path(os.path.abspath(os.path.expanduser(site.text("root") or DEFAULT_ROOT)))


def make(submission: Submission, files: Mapping[str, str], folder: Path, say: Say) -> None:
    """Make the directory with all that is in it. Raises UsageError, and then it is gone."""
    try:
        names.refuse_unsafe(str(folder.parent))
    except names.Refused as error:
        raise UsageError(str(error), hint=error.hint) from error
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(mode=0o700)
    except FileExistsError as error:
        raise IdTaken(f"{folder} is there already") from error
    except OSError as error:
        raise UsageError(
            f"the job directory {folder} cannot be made: {error.strerror}",
            hint="choose another place with --root",
        ) from error
    try:
        if submission.package:
            from paddock.backends.files.package import place_locally

            data = submission.data
            place_locally(submission.package, str(folder), os.environ, say, data=data)
        for each in (folder / INNER, folder / "log"):
            each.mkdir(exist_ok=True, mode=0o700)
        for path, text in files.items():
            write(Path(path), text)
    except OSError as error:
        remove(folder)
        raise UsageError(f"the job directory {folder} cannot be filled: {error}") from error
    except PaddockError as error:
        remove(folder)
        if isinstance(error, UsageError):
            raise
        raise UsageError(error.message, hint=error.hint) from error
    except BaseException:
        remove(folder)
        raise


def write(path: Path, text: str) -> None:
    """For its owner only; what lies in the way is replaced, a link is not followed."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    mode = 0o700 if path.suffix == ".sh" else 0o600
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)


def take_name(folder: Path, name: str, begun: str, state: Callable[[Path], str]) -> None:
    """Nobody else may have the name while the job runs; without it the directory is removed.

    begun: the file in a job's directory that says that it was handed over; before, a young one is
    being submitted. state: of one that was, while it goes on, else "". Raises UsageError.
    """

    def held(there: str) -> str:
        inner = Path(there, INNER)
        if (inner / begun).exists():
            return state(Path(there))
        try:
            is_young = time.time() - inner.stat().st_mtime < HAND_OVER_SECONDS
        except OSError:
            return ""  # it is gone
        return "being submitted" if is_young else ""

    try:
        names.take_name(str(folder), name, held)
    except BaseException as error:
        remove(folder)
        if isinstance(error, names.Refused):
            raise UsageError(str(error), hint=error.hint) from error
        if isinstance(error, OSError):
            raise UsageError(f"the name '{name}' cannot be taken: {error}") from error
        raise


def jobs_below(root: Path, backend: str = "") -> list[tuple[Path, dict[str, object]]]:
    """The job directories there, with what was submitted."""
    found = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        job = read_json(str(folder / INNER / "job.json"))
        if job is not None and (not backend or job.get("backend") == backend):
            found.append((folder, job))
    return found


def copy(folder: Path, cwd: Path, to: Path) -> list[str]:
    """Copy log/ of the job's directory and output/ of the working directory, less our own files.

    Raises UsageError with what could not be brought; the rest is there.
    """
    copied: list[str] = []
    problems: list[Problem] = []
    for name, place in zip(FETCHED, (folder, cwd), strict=True):
        if (place / name).is_dir() and (name == "output" or not (place / name).is_symlink()):
            problems += _copied(place / name, to / name)
            copied.append(str(to / name))
    if problems:
        raise UsageError.of(problems)
    if not copied:
        raise PaddockError(f"{folder} has neither logs nor output")
    return copied


def _copied(source: Path, to: Path) -> list[Problem]:
    """Copy a directory over what an earlier fetch has left; what could not be brought."""

    def left_out(directory: str, names: list[str]) -> set[str]:
        here = to / os.path.relpath(directory, source)
        for name in names:  # a link that is there is not written over
            if os.path.islink(here / name):
                os.unlink(here / name)
        return {INNER}

    try:
        shutil.copytree(source, to, symlinks=True, dirs_exist_ok=True, ignore=left_out)
    except shutil.Error as error:
        found = [f"{path} is not brought: {why}" for path, _, why in error.args[0]]
        more = [f"{len(found) - SHOWN_MAX} more are not brought"] if len(found) > SHOWN_MAX else []
        return [Problem(each) for each in [*found[:SHOWN_MAX], *more]]
    except OSError as error:
        hint = "name another directory with --to, or make room there"
        return [Problem(f"{error.filename or to}: {error.strerror or error}", hint)]
    return []


def remove(folder: Path) -> None:
    """Remove a job's directory; one that is gone already is no error. Raises PaddockError."""
    try:
        if stat.S_ISLNK(folder.lstat().st_mode):
            raise PaddockError(f"{folder} is a link: it is left as it is")
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PaddockError(f"{error.filename}: {error.strerror}") from error


def created_at(folder: Path) -> float:
    """When it was made; now where that cannot be told."""
    try:
        return (folder / INNER / "job.json").stat().st_mtime
    except OSError:
        return time.time()
