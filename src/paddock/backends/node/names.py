"""Names of jobs on a host: ROOT/.names/NAME is a link to the job that has it."""

from __future__ import annotations

import fcntl
import os

from paddock.backends.node.jobdir import node_state


class Refused(Exception):  # the request's fault or the host's: told, not raised
    """What the submitter is told: what is wrong, and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def take_name(directory: str, name: str) -> None:
    """A name belongs to one job as long as that runs. Raises Refused."""
    root, own = os.path.split(directory)
    names = os.path.join(root, ".names")
    os.makedirs(names, 0o700, exist_ok=True)
    path = os.path.join(names, name)
    lock = os.open(names, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
            held = node_state(os.path.join(root, holder))
            if held["state"] in ("starting", "running", "stopping"):
                raise Refused(
                    f"the name '{name}' is in use: {holder} is {held['state']}",
                    "choose another --name, or --replace to stop that job first",
                )
            os.unlink(path)
    finally:
        os.close(lock)
    raise Refused(f"the name '{name}' is being taken by others", "try again")
