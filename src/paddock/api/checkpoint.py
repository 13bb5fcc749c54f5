"""A callable with checkpoint(), as submitit has it, which goes on in the next attempt of its job.

It is pickled with the function and runs in its ranks, also on hosts without Paddock: it imports the
standard library only. What goes on lies beside the call file, in the directory all nodes share.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType
    from typing import Any, NoReturn

GOES_ON = "checkpoint"  # file: a pickle of (function, args, kwargs)
POLL_SECONDS = 0.2


class Checkpointed:
    """Calls the function; at SIGTERM rank 0 calls its checkpoint() and saves what it returns.

    Then all ranks exit with 0, by which the job counts as saved and goes back into the queue.
    """

    def __init__(self, function: Callable[..., object], name: str) -> None:
        """name: for people, of the function."""
        self.function = function
        self.__qualname__ = name
        self.__module__ = type(function).__module__  # which is pickled by value where it must be

    def __call__(self, *args: object, **kwargs: object) -> object:
        function, path = self.function, _path()
        try:
            with open(path, "rb") as file:
                function, args, kwargs = pickle.load(file)
        except FileNotFoundError:
            pass  # nothing was saved: it begins

        def end(number: int, frame: FrameType | None) -> None:
            signal.signal(number, signal.SIG_IGN)  # once
            if os.environ["PADDOCK_RANK"] == "0":
                _save(path, function, args, kwargs)
            else:  # its end might disturb rank 0, which saves for all
                threading.Thread(target=_exit_after, args=(path, begins), daemon=True).start()

        begins = _version(path)
        before = signal.signal(signal.SIGTERM, end)
        try:
            return function(*args, **kwargs)
        finally:
            signal.signal(signal.SIGTERM, before)


def _path() -> str:
    here = os.path.abspath(str(sys.modules["__main__"].__file__))  # call.py, beside the call file
    return os.path.join(os.path.dirname(here), GOES_ON)


def _save(
    path: str, function: Any, args: Sequence[object], kwargs: Mapping[str, object]
) -> NoReturn:
    """Save what checkpoint() returns, and exit with 0. Raises RuntimeError if it returns None."""
    sys.stderr.write("paddock: checkpoint() is called, as the job is to end\n")
    delayed = function.checkpoint(*args, **kwargs)
    if delayed is None:
        raise RuntimeError("checkpoint() returned None: the job does not go back into the queue")
    dumps = sys.modules["__main__"].dumps  # of call.py
    data = dumps((delayed.function, tuple(delayed.args), dict(delayed.kwargs)))
    fd = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    os.replace(f"{path}.part", path)
    sys.exit(0)


def _exit_after(path: str, begins: tuple[int, int]) -> NoReturn:
    """Exit with 0 once rank 0 has saved; the main thread may be in a collective for ever."""
    while _version(path) == begins:
        # sleep: hosts share nothing but the directory
        time.sleep(POLL_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _version(path: str) -> tuple[int, int]:
    """Return what differs once the file was replaced."""
    os.listdir(os.path.dirname(path))  # has NFS ask its server
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns
