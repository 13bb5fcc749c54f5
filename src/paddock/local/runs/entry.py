"""A launch as a run of this user: its id, and its entry in the registry.

    STATE/paddock/runs/<id>/run.json       what was launched, where and when
                            events.jsonl   the states it was in: running, then how it ended
                            status.json    nodes, ranks and the verdict, as last known
                            plan.json      which ranks run on which node, with which devices
                            git.txt        the commit of the working directory, and what differs
    LOG_DIR/runs/<id>/                     its logs and its control socket (logs.py)

STATE is $XDG_STATE_HOME or ~/.local/state. The files are 0600 and are written in the output thread,
after the ranks have started: no job waits for its record. What cannot be written is told in one
line, and the job goes on. Environment values are never written, and no secret of the command line.

At most KEPT_RUNS runs that have ended or were killed are kept (PADDOCK_KEEP_RUNS); each launch
removes up to REMOVED_AT_ONCE of the oldest ones above that, with their directories under
LOG_DIR/runs/.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.core.job import Job

KEPT_RUNS = 1000
REMOVED_AT_ONCE = 20
NOWHERE = "/dev/null/no-home"  # where nothing can be made, by root neither
# Of paddock.launch (api/launch.py): the entry that it made; a pipe that ends when its process does;
# a function, as people read it. Files of an entry: CALL has the function; CALLER the process that
# has not read its results yet.
GIVEN_ID, CALLER_FD, CALL_TEXT = "PADDOCK_RUN_ID", "PADDOCK_CALLER_FD", "PADDOCK_CALL"
CALL, CALLER = "call", "caller"
CONTROL = "control"  # the name of the control socket
DRAWS = 8  # of an id, until an unused one is found
NAME_CHARACTERS_MAX = 40


def registry_folder(env: Mapping[str, str]) -> str:
    """The folder of this user's run records; below NOWHERE for a user without a home directory.

    A relative XDG_STATE_HOME does not count (XDG Base Directory Specification, 0.8).
    """
    state = os.path.expanduser(env.get("XDG_STATE_HOME", ""))
    if not os.path.isabs(state):
        home = os.path.expanduser(env.get("HOME") or "~")
        state = os.path.join(home if os.path.isabs(home) else NOWHERE, ".local", "state")
    return os.path.join(state, "paddock", "runs")


def cache_folder(env: Mapping[str, str]) -> str:
    """The folder of this user's caches, which only cost time when they are gone.

    A relative XDG_CACHE_HOME does not count, as of registry_folder: it would be in the package.
    """
    cache = os.path.expanduser(env.get("XDG_CACHE_HOME", ""))
    if not os.path.isabs(cache):
        home = os.path.expanduser(env.get("HOME") or "~")
        cache = os.path.join(home if os.path.isabs(home) else NOWHERE, ".cache")
    return os.path.join(cache, "paddock")


def profiles_path(env: Mapping[str, str]) -> str:
    """The user's own kinds of progress lines (watch/progress.py); $XDG_CONFIG_HOME or ~/.config."""
    above = env.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(above):
        above = os.path.join(env.get("HOME", "/"), ".config")
    return os.path.join(above, "paddock", "progress.txt")


def as_name(text: str) -> str:
    """The text as the name of a job: lower-case letters, digits and single dashes.

    >>> as_name("PaddleRec_CTR"), as_name("作业")
    ('paddlerec-ctr', 'job')
    """
    dashed = "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower())
    return "-".join(dashed.split())[:NAME_CHARACTERS_MAX].strip("-") or "job"


def job_name(job: Job, env: Mapping[str, str]) -> str:
    """The name of a launched job: its --job-id, else that of its script, module or program.

    The --job-id of paddock.launch is the run's id: its name is without the four hex digits.
    """
    source = job.sources.get("job_id")
    if job.job_id == env.get(GIVEN_ID) and job.job_id[-5:-4] == "-":
        return job.job_id[:-5]
    if source is not None and source.kind != "default":
        return as_name(job.job_id)
    program = job.command.program
    if job.command.kind == "module":
        return as_name(program.removesuffix(".__main__").rpartition(".")[2])
    return as_name(os.path.basename(program).removesuffix(".py"))


def is_recorded(job: Job, env: Mapping[str, str]) -> bool:
    """Return True if a launch is a run of its own: no part of a submitted job or a PaddleJob.

    JOB_COMPLETION_INDEX: of a pod of a Kubernetes Job (Kubernetes documentation, indexed Jobs).
    """
    is_part = job.record or "PADDOCK_JOB_UID" in env or "JOB_COMPLETION_INDEX" in env
    return not is_part and env.get("PADDOCK_KEEP_RUNS") != "0"


class RunEntry:
    """The entry of a run in the registry. folder: "" when there is none; problem has the reason."""

    def __init__(self, run_id: str, folder: str, problem: str = "") -> None:
        self.run_id = run_id
        self.folder = folder
        self.problem = problem

    def remove_empty(self) -> None:
        """Remove the directory of a launch that ended before it wrote anything there."""
        if self.folder:
            try:
                os.rmdir(self.folder)
            except OSError:  # ENOTEMPTY: it has a record, or what a caller put there
                return


def take_entry(env: Mapping[str, str], name: str, chosen_id: str = "") -> RunEntry:
    """Make the entry of a new run: an id that no other run of this user has, and its directory.

    One that paddock.launch has made for this launcher is taken as it is. chosen_id: the id, if it
    is free.
    """
    above = registry_folder(env)
    if (given := env.get(GIVEN_ID)) and os.path.isdir(os.path.join(above, given)):
        return RunEntry(given, os.path.join(above, given))
    if above.startswith(NOWHERE):
        problem = "there is no home directory: set XDG_STATE_HOME to a directory of yours"
        return RunEntry(f"{name}-{os.urandom(2).hex()}", "", problem)
    run_id = ""
    for _ in range(DRAWS):
        run_id = chosen_id or f"{name}-{os.urandom(2).hex()}"
        folder = os.path.join(above, run_id)
        try:
            try:
                os.mkdir(folder, 0o700)
            except FileNotFoundError:
                os.makedirs(above, 0o700, exist_ok=True)
                os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
        except OSError as error:
            problem = f"{error.filename or above}: {error.strerror}; XDG_STATE_HOME may be another"
            return RunEntry(run_id, "", problem)
        return RunEntry(run_id, folder)
    return RunEntry(run_id, "", f"{above}: no free id was found for '{chosen_id or name}'")


def json_text(content: object) -> str:
    """JSON of None, numbers, texts, lists and mappings, in ASCII.

    The launch path does not import json, which costs as much as starting a rank.

    >>> json_text({"a": [1, 2.5, None, True], "b": 'x"\\u00e9'})
    '{"a": [1, 2.5, null, true], "b": "x\\\\"\\\\u00e9"}'
    """
    from _json import encode_basestring_ascii as quoted

    def text(value: object) -> str:
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, (int, float)):
            return repr(value)
        if isinstance(value, str):
            return str(quoted(value))
        if isinstance(value, dict):
            return "{" + ", ".join(f"{quoted(str(k))}: {text(v)}" for k, v in value.items()) + "}"
        assert isinstance(value, (list, tuple)), value
        return "[" + ", ".join(map(text, value)) + "]"

    return text(content)


def prune(above: str, kept: int) -> None:
    """Remove the oldest launches that have ended, down to so many; REMOVED_AT_ONCE at most.

    Submitted jobs stay: `paddock delete` removes what they have elsewhere.
    """
    try:
        entries = sorted(os.scandir(above), key=lambda entry: entry.stat().st_mtime)
    except OSError:
        return
    entries = [entry for entry in entries if entry.name[0] != "."]
    left = min(len(entries) - kept, REMOVED_AT_ONCE)
    for entry in entries[:-kept]:
        if left <= 0:
            return
        left -= _remove_ended(entry.path)


def _remove_ended(folder: str) -> bool:
    """Remove a launch if it has ended, and its directory; True if it was."""
    import json
    import shutil

    from paddock.local.output.lock import is_gone
    from paddock.local.runs.events import end_of, read_events
    from paddock.local.runs.orphans import find_orphans, of_run

    try:
        end = end_of(read_events(folder), is_launch=True)
        with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
            row = json.load(file)
        is_over = end is not None or is_gone(row["details"]["process"])  # killed
        if end is None and is_over:  # ranks of one whose guardian was killed, too, may be left
            is_over = not find_orphans(of_run(str(row["details"].get("uid") or "")))
        try:
            with open(os.path.join(folder, CALLER), encoding="ascii") as file:
                is_over = is_over and is_gone(file.read()) is not False
        except FileNotFoundError:
            pass  # its results have been read, or it was no function
        if not is_over or not row["handle"].startswith("launch:"):
            return False
        directory = str(row["details"].get("directory") or "")
        if is_run_directory(directory, str(row["id"])):
            shutil.rmtree(directory, ignore_errors=True)
        above, name = os.path.split(folder)
        aside = os.path.join(above, f".{name}")  # a launch may end while this goes on
        os.rename(folder, aside)
        shutil.rmtree(aside)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False  # damaged: `paddock list` counts it
    return True


def is_run_directory(path: str, run_id: str) -> bool:
    """Return True if a path is of a directory that a launch made for itself."""
    above, name = os.path.split(path)
    is_ours = name == run_id and os.path.basename(above) == "runs" and os.path.isabs(path)
    return is_ours and os.path.isdir(path) and not os.path.islink(path)
