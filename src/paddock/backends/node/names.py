"""Names of running jobs, and safe roots: ROOT/.names-UID/NAME links to the job with the name."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

from paddock.backends.node.jobdir import node_state, unsafe_folder
from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def refuse_unsafe(root: str) -> None:
    """Refuse a root whose entries others may replace: they could run code as us.

    Raises UsageError.
    """
    if folder := unsafe_folder(root):
        raise UsageError(
            f"{root}: others may write to {folder}, and so exchange what is in it",
            hint=f"chmod o-w {folder} (or +t), or choose another --root",
        )


def alive_state(directory: str) -> str:
    """Return the state of a job that goes on here; "" for one that does not."""
    state = str(node_state(directory)["state"])
    return state if state in ("starting", "running", "stopping") else ""


def take_name(directory: str, name: str, held: Callable[[str], str] = alive_state) -> None:
    """Take a name for a job; a job keeps its name while it runs. Raises UsageError.

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
