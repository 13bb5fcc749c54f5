"""Paths of one job's files on one host, the state that they tell, and who has a name.

Standard library only.

DIR/...                      the working directory: the package, and output of the job
DIR/log/workerlog.N          output of local process N; .times beside it says when (record)
DIR/log/console.log          output shown by the ranks here; on the first host the launcher's too
DIR/log/screen.log           the screen of another host's launcher
DIR/nodefile, cluster.json   this host's node rank, and all nodes
DIR/.paddock/job.json        the submission, without secrets
DIR/.paddock/state.json      who makes the job; then the job daemon, and how the job ended
DIR/.paddock/phases.json     when this host became one of the job's, and when its code was there
DIR/.paddock/error           why a launcher ended before a verdict (local/runs/record.py)
DIR/.paddock/status.json     the whole job, as its coordinator knows it (on one host)
DIR/.paddock/control.HOST    the socket on which its launcher answers (local/runs/control.py)
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from contextlib import suppress

from paddock.errors import PaddockError, UsageError
from paddock.local.output.lock import process_text
from paddock.local.runs.orphans import below, find_orphans, names_of
from paddock.local.runs.record import ERROR, VERDICT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from paddock.local.runs.orphans import Owns

INNER = ".paddock"
CONSOLE, SCREEN = "console.log", "screen.log"  # in log/
FILE_MODE = 0o600
ERROR_CHARACTERS = 1 << 14
STATUS_SECONDS = 1.0  # a launcher that is silent is stopped, or very busy
STOP, NOW = "stop", "now"  # the stop file, and how it begins if no grace is given
ALIVE = ("starting", "running", "stopping")  # as in types.py, which hosts do not load
STATE, MAKING = "state.json", "making"  # its name, and its state until the job daemon runs


def write_json(path: str, content: object) -> None:
    """Write a JSON file atomically; a link in the way is replaced, not followed."""
    write_text(path, json.dumps(content), FILE_MODE)


def write_text(path: str, text: str, mode: int = 0o644) -> None:
    """Write a text file atomically. The temporary name is random: hosts may share the directory."""
    temporary = f"{path}.{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def overwrite_json(path: str, content: object) -> None:
    """Overwrite an existing JSON file in place: on a full disk it has a block already."""
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        text = json.dumps(content).encode()
        os.pwrite(fd, text.ljust(os.fstat(fd).st_size), 0)  # never shorter: readers see it whole
    finally:
        os.close(fd)


def read_json(path: str) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if there is no file, or it holds no object."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def last_error(directory: str) -> str:
    """Return why a launcher there ended before a verdict; "" if none recorded an error."""
    try:
        with open(inner(directory, ERROR), encoding="utf-8", errors="replace") as file:
            return file.read(ERROR_CHARACTERS).strip()
    except OSError:
        return ""


def end_reason(directory: str) -> str:
    """Return why a launcher there failed: its error, or the verdict, also one of its own; or ""."""
    verdict = read_json(inner(directory, VERDICT)) or {}
    text = last_error(directory) or (verdict.get("text") if verdict.get("kind") == "fail" else "")
    return text[:ERROR_CHARACTERS] if isinstance(text, str) else ""


def inner(directory: str, name: str) -> str:
    """Return the path of one of our own files in a job's directory."""
    return os.path.join(directory, INNER, name)


def process_of(pid: int) -> dict[str, object] | None:
    """Return what identifies a process although its pid is reused; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] == b"Z":
        return None
    return {"pid": pid, "start": int(fields[19]), "boot": process_text(pid).partition(" ")[0]}


def is_alive(process: Mapping[str, Any] | None) -> bool:
    """Return True if the recorded process still runs: same pid, start and boot."""
    if not isinstance(process, dict) or type(process.get("pid")) is not int:
        return False
    return process_of(process["pid"]) == process


def is_running(state: Mapping[str, Any]) -> bool:
    """Return True if a job daemon has said in state.json that it runs, and still does."""
    return state.get("state") == "running" and is_alive(state.get("process"))


def refuse_unsafe(root: str) -> None:
    """Raise UsageError for a root whose entries others may replace: they could run code as us."""
    if folder := unsafe_folder(root):
        raise UsageError(
            f"{root}: others may write to {folder}, and so exchange what is in it",
            hint=f"chmod o-w {folder} (or +t), or choose another --root",
        )


def unsafe_folder(path: str) -> str:
    """Return the directory on the way to a path whose entries others may replace; "" for none.

    A directory that others may write to must be sticky, as /tmp is, and its entry ours or root's.
    """
    for folder in (os.path.realpath(path), os.path.abspath(path)):
        entry = ""  # our entry, to be made there
        while folder != entry:
            if _is_open(folder, entry):
                return folder
            folder, entry = os.path.dirname(folder), folder
    return ""


def _is_open(folder: str, entry: str) -> bool:
    """Return True if others may replace an entry of the folder; "" stands for an entry of ours."""
    try:
        found = os.stat(folder)
    except OSError:
        return False  # it is not there yet: it will be ours
    if not found.st_mode & stat.S_IWOTH:
        return False
    is_there = bool(entry) and os.path.lexists(entry)
    owner = os.lstat(entry).st_uid if is_there else os.geteuid()
    return not found.st_mode & stat.S_ISVTX or owner not in (0, os.geteuid(), found.st_uid)


def node_state(directory: str) -> dict[str, Any]:
    """Return the state of this host's part of the job: state, code, why; the whole job's if known.

    state.json   job daemon   state
    absent       -            lost
    making       -            starting, stopping; lost once its submitter has gone
    running      alive        starting, running (ranks are up), stopping (was told to)
    running      gone         lost
    ended        -            succeeded, failed, cancelled

    Where no job daemon is alive, and processes of the job are, it is running (stopping once it was
    told to end), and "orphans" names them.
    """
    found = launched_state(directory)
    if found["state"] in ALIVE or not (orphans := find_orphans(owned_by(directory))):
        return found
    text = f"{names_of(orphans)}: left by a launcher that was killed; "
    text += "paddock stop ends what is left"
    state = "stopping" if os.path.exists(inner(directory, STOP)) else "running"
    return {**found, "state": state, "code": None, "why": text, "orphans": text}


def owned_by(directory: str) -> Owns:
    """Return what tells the processes of a job on this host: their logs are in its directory."""
    return below(os.path.join(directory, "log"))


def launched_state(directory: str) -> dict[str, Any]:
    """Return the state of node_state, by the files and the launcher alone."""
    from paddock.backends.node.logs import histories
    from paddock.watch.history import latest_rows

    row = read_state(directory)
    whole = read_json(inner(directory, "status.json"))
    news = [row for path in histories(directory) for row in latest_rows(path)]
    found: dict[str, Any] = {"now": time.time(), "whole": whole, "ranks": {}, "news": news}
    has_stopped = os.path.exists(inner(directory, STOP))
    if row.get("state") == MAKING:
        return {**found, "state": "stopping" if has_stopped else "starting"}
    if not row:
        return {**found, "state": "lost", "why": f"{directory} has no job"}
    found |= {"since": row.get("at", 0.0), "code": row.get("code"), "why": row.get("why", "")}
    if row.get("state") != "running":
        return {**found, "state": row.get("state", "lost")}
    if not is_running(row):
        why = "its launcher is gone without a word: killed, or the host was started again"
        return {**found, "state": "lost", "why": why}
    is_up = _ask_launcher(directory, found)
    return {**found, "state": "stopping" if has_stopped else "running" if is_up else "starting"}


def _ask_launcher(directory: str, found: dict[str, Any]) -> bool:
    """Ask the launcher's control socket; True if ranks are up, or it is silent.

    Its answer is stored: ranks, and the whole job if known. If it does not answer (on another host,
    or stopped by SIGSTOP), its files are read instead.
    """
    from paddock.local.runs.control import NoLauncherError, ask

    try:
        row = ask(control_socket(directory), "status", seconds=STATUS_SECONDS)
    except NoLauncherError:
        return False
    except PaddockError:
        return True
    found["ranks"] = row.get("pids", {})
    if row.get("is_coordinator"):
        found["whole"] = {**row, "at": row.get("now", 0.0)}
    return bool(found["ranks"])


def control_socket(directory: str) -> str:
    """Return the path of the control socket of this host's launcher; hosts may share the folder."""
    return inner(directory, f"control.{os.uname().nodename}")


def read_state(directory: str) -> dict[str, Any]:
    """Return the content of state.json; {} if there is no job, or its submitter left halfway.

    Read again before that is said: the job may have started since, and its submitter have gone.
    """
    for _ in range(2):
        row = read_json(inner(directory, STATE)) or {}
        if row.get("state") != MAKING or is_alive(row.get("process")):
            return row
    return {}


def alive_state(directory: str) -> str:
    """Return the state of a job that goes on here; "" for one that does not."""
    state = str(node_state(directory)["state"])
    return state if state in ALIVE else ""


def take_name(directory: str, name: str, held: Callable[[str], str] = alive_state) -> None:
    """Take a name for a job; a job keeps its name while it runs. Raises UsageError.

    ROOT/.names-UID/NAME is a link to the directory of the job that has the name.
    held: returns the state of a job that still keeps its name, given its directory, else "".
    """
    root, own = os.path.split(directory)
    names = os.path.join(root, f".names-{os.geteuid()}")
    os.makedirs(names, 0o700, exist_ok=True)
    path = os.path.join(names, name)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(os.path.join(names, ".lock"), flags, 0o600)  # NFS locks no directory
    try:
        with suppress(OSError):  # a file system without locks: the quicker job has it
            fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(3):
            try:
                os.symlink(own, path)
                return
            except FileExistsError:
                pass
            try:
                holder = os.path.basename(os.readlink(path))
            except FileNotFoundError:
                continue
            if state := held(os.path.join(root, holder)):
                raise UsageError(
                    f"the name '{name}' is in use: {holder} is {state}",
                    hint="choose another --name, or --replace to stop that job first",
                )
            os.unlink(path)
    finally:
        os.close(lock)
    raise UsageError(f"the name '{name}' is being taken by others", hint="try again")
