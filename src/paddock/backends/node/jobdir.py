"""One job's files on one host, and what can be told from them. Standard library only.

DIR/...                      the working directory: what was sent, what the job writes
DIR/log/workerlog.N          output of local process N; .times beside it says when (record)
DIR/log/console.log          what the ranks here show; of the first host its launcher's screen, too
DIR/log/screen.log           the screen of another host's launcher
DIR/nodefile, cluster.json   this host's number, and who takes part
DIR/.paddock/job.json        what was submitted, without secrets
DIR/.paddock/state.json      the attendant: which process, how it ended
DIR/.paddock/error           why a launcher ended before there was a verdict (local/record.py)
DIR/.paddock/status.json     the whole job, as its coordinator knows it (on one host)
DIR/.paddock/control.HOST    the socket on which its launcher answers (local/control.py)
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from contextlib import suppress

from paddock.local.record import ERROR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

INNER = ".paddock"
CONSOLE, SCREEN = "console.log", "screen.log"  # in log/
FILE_MODE = 0o600
ERROR_CHARACTERS = 1 << 14
STATUS_SECONDS = 1.0  # a launcher that is silent is stopped, or very busy
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def write_json(path: str, content: object) -> None:
    """Whole or not at all; a link that lies in the way is replaced, not followed."""
    write_text(path, json.dumps(content), FILE_MODE)


def write_text(path: str, text: str, mode: int = 0o644) -> None:
    """The same for any text. Hosts that share a directory do not meet: the name is drawn."""
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
    """Into a file that is there: on a full disk it has a block already, which this needs alone."""
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        text = json.dumps(content).encode()
        os.pwrite(fd, text.ljust(os.fstat(fd).st_size), 0)  # never shorter: readers see it whole
    finally:
        os.close(fd)


def read_json(path: str) -> dict[str, Any] | None:
    """What a file holds; None when there is none, or it cannot be read as an object."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def last_error(directory: str) -> str:
    """Why a launcher there ended before there was a verdict; "" where none has said so."""
    try:
        with open(inner(directory, ERROR), encoding="utf-8", errors="replace") as file:
            return file.read(ERROR_CHARACTERS).strip()
    except OSError:
        return ""


def inner(directory: str, name: str) -> str:
    """The path of one of our own files in a job's directory."""
    return os.path.join(directory, INNER, name)


def process_of(pid: int) -> dict[str, object] | None:
    """What tells a process from a later one with its number; None when there is none.

    start: clock ticks since the boot, field 22 of /proc/PID/stat (proc(5)).
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] == b"Z":
        return None
    return {"pid": pid, "start": int(fields[19]), "boot": boot_id()}


def boot_id() -> str:
    """Another one after each boot of this machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def is_alive(process: Mapping[str, Any] | None) -> bool:
    """Whether the very process that was written down is still there."""
    if not isinstance(process, dict) or type(process.get("pid")) is not int:
        return False
    return process_of(process["pid"]) == process


def unsafe_folder(path: str) -> str:
    """The directory on the way to a path whose entries others may exchange; "" for none.

    What others may write to must be sticky, as /tmp is, and what lies in it ours or root's.
    """
    for folder in (os.path.realpath(path), os.path.abspath(path)):
        entry = ""  # what we shall make there
        while folder != entry:
            if _is_open(folder, entry):
                return folder
            folder, entry = os.path.dirname(folder), folder
    return ""


def _is_open(folder: str, entry: str) -> bool:
    """Whether others may exchange an entry there; "" is one that is ours."""
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
    """How this host's part of the job is: state, code, why; and the whole job's, if known here.

    state.json   attendant    state
    absent       -            starting, stopping (its submitter is still at it), else lost
    running      alive        starting, running (ranks are up), stopping (was told to)
    running      gone         lost
    ended        -            succeeded, failed, cancelled
    """
    row, is_making = read_state(directory)
    whole = read_json(inner(directory, "status.json"))
    found: dict[str, Any] = {"now": time.time(), "whole": whole, "ranks": {}}
    has_stopped = os.path.exists(inner(directory, "stop"))
    if row is None and is_making:
        return {**found, "state": "stopping" if has_stopped else "starting"}
    if row is None:
        return {**found, "state": "lost", "why": f"{directory} has no job"}
    found |= {"since": row.get("at", 0.0), "code": row.get("code"), "why": row.get("why", "")}
    if row.get("state") != "running":
        return {**found, "state": row.get("state", "lost")}
    if not is_alive(row.get("process")):
        why = "its launcher is gone without a word: killed, or the host was started again"
        return {**found, "state": "lost", "why": why}
    is_up = _ask_launcher(directory, found)
    return {**found, "state": "stopping" if has_stopped else "running" if is_up else "starting"}


def _ask_launcher(directory: str, found: dict[str, Any]) -> bool:
    """Whether ranks are up here, as the launcher says; which, and the whole job if it knows that.

    What it has written is read where it does not answer: from another host, and stopped (SIGSTOP).
    """
    from paddock.errors import PaddockError
    from paddock.local.control import NoLauncherError, ask

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
    """Where the launcher of this host answers; others may share the directory."""
    return inner(directory, f"control.{os.uname().nodename}")


def lock_making(directory: str) -> int:
    """Say that a job's directory is being made, until unlock_making or the end of this process."""
    os.mkdir(os.path.join(directory, INNER), 0o700)
    fd = os.open(os.path.join(directory, INNER), FOLDER_FLAGS)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        pass  # a file system without locks: what is being made looks lost until it has started
    return fd


def unlock_making(fd: int) -> None:
    """It is made. What was forked meanwhile has the descriptor too: closing would not do."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        pass
    os.close(fd)


def read_state(directory: str) -> tuple[dict[str, Any] | None, bool]:
    """What state.json holds, and whether the job is being made.

    The latter is asked first: who makes a job lets go of it once state.json is there, and a job
    that starts meanwhile would look lost.
    """
    is_making = is_being_made(directory)
    return read_json(inner(directory, "state.json")), is_making


def is_being_made(directory: str) -> bool:
    """Whether a submitter is connected that has not started the job yet."""
    try:
        fd = os.open(os.path.join(directory, INNER), FOLDER_FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
