"""The program on a host that answers requests, one after another, until the submitter has gone.

op        does
--------  ---------------------------------------------------------------
hello     this host's address, a free port, the root; looks for numpy if it is needed
prepare   makes the job's directory, takes its name
have put place   contents of the package (files.py)
offer take       contents that hosts send to one another (files.py)
start     starts the job daemon with the launcher
follow    sends the console until the job has ended here; pings are expected meanwhile
status    the state of this host's part
logs      pieces of the logs (logs.py)
history   the rows of a launcher's history that are new
stacks    the stacks of the ranks here, from their launcher
stop      asks the job here to end
fetch     sends log/ and output/ as a tar file
discover  the jobs below a root
delete    removes an ended job's directory
clear     removes all contents of the store, so that they are sent again
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack, contextmanager

from paddock.backends.node import daemon, workspace
from paddock.backends.node.jobdir import (
    CONSOLE,
    INNER,
    MAKING,
    SCREEN,
    STATE,
    STOP,
    inner,
    is_running,
    launched_state,
    node_state,
    owned_by,
    process_of,
    read_json,
    read_state,
    refuse_unsafe,
    take_name,
    write_json,
    write_text,
)
from paddock.backends.node.wire import CHUNK_BYTES, Wire, WireEnded
from paddock.errors import PaddockError, UsageError
from paddock.local.guardian import HOLDER_LOST, SUBMITTER_LOST
from paddock.local.runs.orphans import find_orphans, names_of
from paddock.local.runs.record import PHASES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    Row = dict[str, Any]

POLL_SECONDS = 0.05
# An attached job ends when its submitter was not heard for so long.
ATTACHED_LEASE_SECONDS = 10.0
LISTEN_SECONDS = 1.0
HISTORY_BYTES = 4 << 20  # of one answer


def serve(program: str) -> None:
    """Answer requests on the standard input. program: the directory of this archive's content."""
    host = HostSession(Wire(0, 1), program)
    try:
        host.serve()
    except (WireEnded, BrokenPipeError, KeyboardInterrupt):
        pass
    os._exit(0)  # closes the lease of an attached job


class HostSession:
    """The session of one connection to this host."""

    def __init__(self, wire: Wire, program: str) -> None:
        self._wire = wire
        self._program = program
        self._made: set[str] = set()  # directories that this connection has made
        self._allocated_at = 0.0  # seconds since 1970: this host has become one of a job's
        self._lease = -1
        self._ops: dict[str, Callable[[Row], Row | None]] = {
            "hello": self._hello,
            "prepare": self._prepare,
            "start": self._start,
            "follow": self._follow,
            "status": lambda row: node_state(_directory(row)),
            "stop": self._stop,
            "logs": self._logs,
            "history": self._history,
            "stacks": self._stacks,
            "fetch": self._fetch,
            "discover": self._discover,
            "delete": self._delete,
            "clear": self._clear,
            "ping": lambda _row: {},
        }

    def serve(self) -> None:
        """Answer requests until the submitter has gone."""
        while True:
            row = self._wire.receive_row()
            if row is not None:
                self._answer(row)

    def _answer(self, row: Row) -> None:
        name = str(row.get("op", ""))
        if name in ("put", "place", "offer", "take"):
            from paddock.backends.node import files

            files.serve({**row, "directory": _directory(row)}, self._wire)
            return
        operation = self._ops.get(name)
        try:
            if operation is None:
                raise UsageError(f"unknown request '{name}'")
            answer = operation(row)
        except PaddockError as error:
            answer = {"error": error.message, "hint": error.hint}
        except OSError as error:
            answer = {"error": f"{error.filename or _root(row)}: {error.strerror or error}"}
        if answer is not None:
            self._wire.send({"re": name, **answer})

    # ------------------------------------------------------------------- start

    def _hello(self, row: Row) -> Row:
        if row.get("has_ps"):
            from paddock.backends.node import carried

            carried.look(_python(row), {**os.environ, **row["env"]})
        root = _root(row)
        refuse_unsafe(root)
        os.makedirs(root, 0o700, exist_ok=True)
        seen = os.environ.get("SSH_CONNECTION", "").split()
        return {
            "address": seen[2] if len(seen) == 4 else "127.0.0.1",
            "port": _free_port(),
            "root": root,
            "workspace": _identity(str(row.get("cwd") or "")),
        }

    def _prepare(self, row: Row) -> Row:
        """Make the job's directory, empty. is_taken: another job has it.

        part: this host's part of a shared directory that the first host has made.
        """
        self._allocated_at = time.time()
        directory, submitter = _directory(row), str(row.get("submitter", ""))
        refuse_unsafe(os.path.dirname(directory))  # again: another user may have made it since
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            made = read_json(inner(directory, STATE)) or {}
            if not row.get("index") or made.get("by") != submitter:
                return {"part": "", "is_taken": True}
            part = f"nodes/{int(row['index'])}"
            self._made.add(os.path.join(directory, part))
            return {"part": part}
        self._made.add(directory)
        os.mkdir(inner(directory, ""), 0o700)
        making = {"state": MAKING, "by": submitter, "process": process_of(os.getpid())}
        write_json(inner(directory, STATE), making)
        if row.get("takes_name"):  # last: a search for its holder finds one
            take_name(directory, str(row["name"]))
        return {"part": ""}

    def _start(self, row: Row) -> Row:
        """Start the launcher under a job daemon. words: of `paddock launch`. env: added to ours."""
        directory = _directory(row)
        os.makedirs(os.path.join(directory, INNER), 0o700, exist_ok=True)
        if os.path.exists(inner(directory, STOP)):
            raise UsageError("the job was told to end before it had started")
        phases = {"allocated": self._allocated_at, "code_there": time.time()}
        write_json(inner(directory, PHASES), phases)
        write_json(inner(directory, "job.json"), row["job"])
        if row.get("file"):
            write_text(inner(directory, "launch.json"), str(row["file"]), 0o600)
        cwd = os.path.expanduser(str(row.get("cwd") or directory))
        if not os.path.isdir(cwd):
            raise UsageError(
                f"the workspace {cwd} is not there", hint="name one that is on every host"
            )
        logs = os.path.join(directory, "log")
        os.makedirs(logs, 0o700, exist_ok=True)
        # Where hosts share the working directory, its nodefile could be right for one of them only.
        for place in {directory} if row.get("is_shared") else {cwd, directory}:
            write_text(os.path.join(place, "nodefile"), f"{row['index']}\n")
            write_json(os.path.join(place, "cluster.json"), row["cluster"])
            workspace.link_logs(logs, os.path.join(place, "log"))
        words = [str(word) for word in row["words"]]
        console = os.path.join(logs, CONSOLE)
        # The first host tells the story: its ranks and its launcher in one file keep their order.
        screen = console if row["index"] == 0 else os.path.join(logs, SCREEN)
        self._lease = daemon.start(
            directory,
            [_python(row), "-I", "-S", self._program, "launch", *words],
            {**os.environ, **row["env"]},
            cwd=cwd,
            outputs=(console, screen),
            is_attached=bool(row["is_attached"]),
            loss=HOLDER_LOST if row.get("is_held") else SUBMITTER_LOST,
        )
        if os.path.exists(inner(directory, STOP)):  # asked while no launcher was there
            self._stop(row)
        return {"directory": directory}

    def _follow(self, row: Row) -> Row | None:
        """Send the console and the screen as they grow, and answer requests meanwhile."""
        directory = _directory(row)
        logs = os.path.join(directory, "log")
        with ExitStack() as stack:
            names = [name for name in (CONSOLE, SCREEN) if os.path.exists(os.path.join(logs, name))]
            files = [stack.enter_context(open(os.path.join(logs, name), "rb")) for name in names]
            while True:
                state = read_json(inner(directory, STATE)) or {"state": "lost"}
                is_over = not is_running(state)
                for name, file in zip(names, files, strict=True):
                    while data := file.read(CHUNK_BYTES):
                        with self._heard():
                            self._wire.send({"re": name}, data)
                if is_over:
                    return {**launched_state(directory), "ended": True}
                message = self._wire.receive_row(POLL_SECONDS)
                if message is not None:
                    with self._heard():
                        self._answer(message)
                self._check_lease()

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Receive pings while sending: a submitter that reads slowly is still heard."""

        def listen(_number: int, _frame: object) -> None:
            self._wire.listen()
            self._check_lease()

        signal.signal(signal.SIGALRM, listen)
        signal.setitimer(signal.ITIMER_REAL, LISTEN_SECONDS, LISTEN_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _check_lease(self) -> None:
        if time.monotonic() - self._wire.heard_at > ATTACHED_LEASE_SECONDS:
            raise WireEnded

    # ------------------------------------------------------------------- later

    def _stop(self, row: Row) -> Row:
        """Ask the job to end. is_undone: only if this connection has made it."""
        directory = _directory(row)
        if row.get("is_undone") and directory not in self._made:
            return {"was_running": False}
        state = read_state(directory)
        if state.get("state") == MAKING:
            write_text(inner(directory, STOP), f"{time.time()}\n")
            state = read_state(directory)  # it may have started before the file was there
        if not is_running(state):
            return {"was_running": daemon.end_orphans_of(directory, now=bool(row.get("now")))}
        number = row.get("signal")
        number = number if number in daemon.STOPPED_BY else signal.SIGTERM
        is_now = bool(row.get("now"))
        return {"was_running": daemon.ask_to_stop(directory, state, now=is_now, number=number)}

    def _logs(self, row: Row) -> Row:
        """Send rows of logs.py, a message each, after this host's clock."""
        from paddock.backends.node import logs
        from paddock.backends.types import LogQuery

        directory = _directory(row)
        # Times are by the asker's clock; ours may be another.
        ahead = time.time() - float(row["asked_at"])
        since, until = (float(row[k]) + ahead if row[k] else 0.0 for k in ("since", "until"))
        query = LogQuery(tuple(row["ranks"]), since, until, bool(row["follow"]), row["tail"])
        self._wire.send({"re": "clock", "now_ns": time.time_ns()})

        def is_over() -> bool:
            state = read_state(directory)
            return state.get("state") != MAKING and not is_running(state)

        found = logs.rows(directory, query, host=str(row.get("host", "")), is_over=is_over)
        for at_ns, label, data in found:
            for at in range(0, max(1, len(data)), CHUNK_BYTES):
                part = data[at : at + CHUNK_BYTES] if len(data) > CHUNK_BYTES else data
                self._wire.send({"re": "row", "at_ns": at_ns, "label": label}, part)
        return {"ended": True}

    def _history(self, row: Row) -> Row:
        """Send what is new in the histories here. known: inode and size that the asker has."""
        from paddock.backends.node import logs

        directory, known, files = _directory(row), row.get("known") or {}, []
        left = HISTORY_BYTES
        for path in logs.histories(directory):
            name = os.path.relpath(path, directory)
            with open(path, "rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                before, size = known.get(name) or (0, 0)
                at = file.seek(size if before == inode else 0)
                data = file.read(left)
            data = data[: data.rfind(b"\n") + 1]
            left -= len(data)
            text = data.decode("utf-8", "replace")
            files.append({"name": name, "inode": inode, "at": at, "text": text})
        return {"files": files, "is_whole": left > HISTORY_BYTES // 2}

    def _stacks(self, row: Row) -> Row:
        from pathlib import Path

        from paddock.watch.folder import ask_folders

        folder, native = Path(_directory(row)), bool(row.get("native"))
        host = os.uname().nodename  # others may share the directory
        return ask_folders(folder.name, [folder / INNER], native=native, host=host)[0]

    def _fetch(self, row: Row) -> Row:
        from paddock.backends.node.pack import pack

        directory = _directory(row)
        cwd = os.path.expanduser(str(row.get("cwd") or "")) or directory
        places = {
            str(name): os.path.join(directory if name == "log" else cwd, str(name))
            for name in row["names"]
        }
        return {"left_out": pack(places, lambda data: self._wire.send({"re": "part"}, data))}

    def _discover(self, row: Row) -> Row:
        root = _root(row)
        found = []
        for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
            job = read_json(inner(os.path.join(root, name), "job.json"))
            if job is not None:
                found.append({**job, "id": name})
        return {"jobs": found, "root": root}

    def _delete(self, row: Row) -> Row:
        directory = _directory(row)
        if row.get("part") or not os.path.isdir(directory):
            return {}  # the first host removes it all
        if row.get("is_undone") and directory not in self._made:
            return {}
        if directory not in self._made and read_state(directory).get("state") == MAKING:
            raise UsageError("the job is being submitted", hint="paddock stop first")
        is_ours = os.path.isdir(inner(directory, ""))
        if not is_ours and os.listdir(directory):
            raise UsageError(f"{directory} is not a job's directory: it is left as it is")
        if is_running(read_json(inner(directory, STATE)) or {}):
            raise UsageError("the job still runs", hint="paddock stop first")
        if orphans := find_orphans(owned_by(directory)):
            what = f"the job has not ended: {names_of(orphans)}"
            raise UsageError(what, hint="paddock stop first")
        import shutil  # dear, and rarely needed

        job = read_json(inner(directory, "job.json")) or {}
        if job.get("cwd"):
            workspace.clean(directory, os.path.expanduser(str(job["cwd"])))
        for each in os.scandir(directory):  # what tells a job's directory last: we may be killed
            if each.name != INNER:
                is_folder = each.is_dir(follow_symlinks=False)
                (shutil.rmtree if is_folder else os.unlink)(each.path)
        shutil.rmtree(directory)
        return {}

    def _clear(self, _row: Row) -> Row:
        from paddock.backends.node.store import ContentStore, default_folder

        store = ContentStore(default_folder(os.environ))
        count, size = store.clear()
        return {"count": count, "size": size, "folder": store.folder}


def _directory(row: Mapping[str, Any]) -> str:
    """Return the job's directory: one name below the root, never a path out of it."""
    name = str(row["id"])
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise UsageError(f"'{name}' is not the name of a job")
    part = str(row.get("part") or "")
    if part and not (part.startswith("nodes/") and part[6:].isdigit()):
        raise UsageError(f"'{part}' is not a part of a job")
    return os.path.join(_root(row), name, part).rstrip("/")


def _python(row: Mapping[str, Any]) -> str:
    """Return the Python that runs the job; ~ is the home here."""
    return os.path.expanduser(str(row.get("python") or sys.executable))


def _root(row: Mapping[str, Any]) -> str:
    """Return the directory that holds the jobs; a relative path is below the home."""
    root = os.path.expanduser(str(row.get("root") or "~/paddock/jobs"))
    return os.path.normpath(os.path.join(os.path.expanduser("~"), root))


def _identity(path: str) -> str:
    """Return an identity of a directory, the same on hosts that share it; "" if there is none."""
    try:
        found = os.stat(os.path.expanduser(path)) if path else None
    except OSError:
        return ""
    return f"{found.st_ino} {found.st_ctime_ns}" if found is not None else ""


def _free_port() -> int:
    from _socket import AF_INET, SOCK_STREAM, socket  # the module around it costs 5 ms

    probe = socket(AF_INET, SOCK_STREAM)
    try:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
    finally:
        probe.close()
