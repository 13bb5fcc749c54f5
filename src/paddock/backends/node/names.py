"""What a root may be, and names below it: ROOT/.names-UID/NAME links to the job that has it."""

from __future__ import annotations

import fcntl
import os

from paddock.backends.node.jobdir import node_state, unsafe_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Refused(Exception):  # the request's fault or the host's: told, not raised
    """What the submitter is told: what is wrong, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def refuse_unsafe(root: str) -> None:
    """Who may exchange the job's directory may have anything executed as us. Raises Refused."""
    if folder := unsafe_folder(root):
        raise Refused(
            f"{root}: others may write to {folder}, and so exchange what is in it",
            f"chmod o-w {folder} (or +t), or choose another --root",
        )


def alive_state(directory: str) -> str:
    """The state of a job that goes on here; "" for one that does not."""
    state = str(node_state(directory)["state"])
    return state if state in ("starting", "running", "stopping") else ""


def take_name(directory: str, name: str, held: Callable[[str], str] = alive_state) -> None:
    """A name belongs to one job as long as that runs. Raises Refused.

    held: the state of a job's directory while that keeps its name, else "".
    """
    root, own = os.path.split(directory)
    names = os.path.join(root, f".names-{os.geteuid()}")
    os.makedirs(names, 0o700, exist_ok=True)
    path = os.path.join(names, name)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    lock = os.open(os.path.join(names, ".lock"), flags, 0o600)  # NFS locks no directory
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: who is quicker has it
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
                raise Refused(
                    f"the name '{name}' is in use: {holder} is {state}",
                    "choose another --name, or --replace to stop that job first",
                )
            os.unlink(path)
    finally:
        os.close(lock)
    raise Refused(f"the name '{name}' is being taken by others", "try again")
