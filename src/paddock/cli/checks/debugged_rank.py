"""The program of the rank that ``paddock debug`` holds: the user's script under pdb or debugpy.

    debugged_rank.py RANK SOCKET|PORT script|module PROGRAM [arguments]

pdb: the socket's other end (cli/debug.py) has the terminal. It sends a descriptor of it, and is
told of each prompt (p), of its end (c) and of `quit` (q), which ends the job and so this process.
A SIGTERM at a prompt ends nothing, and is told (s): most often another rank has failed. Once the
other end of the socket is closed, the kernel kills this process.

The rank's output goes to its log, as that of every rank: descriptor 1 is the terminal only while
pdb asks. debugpy: an editor is waited for at the port.
"""

from __future__ import annotations

import signal
import sys

if not sys.argv[2].isdigit():  # pdb takes it once it asks: see RankPdb
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
if sys.argv[3] == "script":  # before other imports: none is found beside this file
    sys.path[0] = sys.argv[4].rpartition("/")[0] or "."
else:
    sys.path[0] = ""

import array
import fcntl
import importlib
import importlib.util
import os
import pdb
import socket
import termios
import time
import traceback
from contextlib import contextmanager, suppress
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    Handler = Callable[[int, FrameType | None], object] | int | None

DRAIN_SECONDS = 0.5  # until the launcher has read what the rank printed before a prompt
SHOW_SECONDS = 0.03  # until it has shown that


class RankPdb(pdb.Pdb):
    """pdb on a terminal that is this process's only while it asks."""

    def __init__(self, rank: str, link: socket.socket, output: int) -> None:
        """output: the terminal, or -1 where the commands come from a file or pipe."""
        super().__init__()
        self.prompt = f"(Pdb rank {rank}) "
        self.is_post_mortem = False
        self._link = link
        self._output = output
        self._own = sys.stdin, sys.stdout

    def interaction(self, *args: object, **more: object) -> None:
        with self._terminal():
            super().interaction(*args, **more)  # type: ignore[arg-type]  # differs by version

    @contextmanager
    def _terminal(self) -> Iterator[None]:
        replaced = sys.stdin, sys.stdout
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for fd in (1, 2):
            _wait_until_read(fd)
        time.sleep(SHOW_SECONDS)
        kept = os.dup(1)
        before: Handler = None
        with suppress(ValueError):  # not the main thread
            before = signal.signal(signal.SIGTERM, self._stay)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        sys.stdin, sys.stdout = self._own
        if self._output >= 0:
            os.dup2(self._output, 1)
        self._link.send(b"p")
        try:
            yield
        finally:
            self._link.send(b"c")
            sys.stdout.flush()
            os.dup2(kept, 1)
            os.close(kept)
            sys.stdin, sys.stdout = replaced
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def _stay(self, _number: int, _frame: FrameType | None) -> None:
        """Stay at the prompt: another rank has failed, or the job was told to stop."""
        self._link.send(b"s")

    def sigint_handler(self, number: int, frame: FrameType | None) -> None:
        if self.allow_kbdint:  # type: ignore[attr-defined]  # of pdb.Pdb
            raise KeyboardInterrupt  # at the prompt
        self.message("\nProgram interrupted. (Use 'cont' to resume).")
        self.stop_at(frame)

    def stop_at(self, frame: FrameType | None) -> None:
        """Ask at the next line of the program's own frame; pdb would stop in itself."""
        sys.settrace(None)
        while frame is not None and frame.f_globals.get("__name__") in ("bdb", "pdb"):
            frame = frame.f_back
        self.set_trace(frame)

    def do_run(self, arg: str) -> bool | None:
        """Refuse pdb's `run` and `restart`: the other ranks would go on with their old peer."""
        self.error("a rank does not start again alone; q ends the job")
        return None

    do_restart = do_run

    def do_EOF(self, _arg: str) -> bool:
        """Quit, also where the terminal has been closed: then nothing can be printed on it."""
        with suppress(OSError):
            self.message("")
        self.set_quit()
        return True

    def set_quit(self) -> None:
        """End the job, and this process with it; after a failure, this process alone."""
        if self.is_post_mortem:
            super().set_quit()
            return
        with suppress(ValueError):  # not the main thread
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._link.send(b"q")
        while True:
            time.sleep(60)  # the launcher's SIGTERM ends it


def _wait_until_read(fd: int) -> None:
    """Wait until nothing is left in a pipe."""
    end = time.monotonic() + DRAIN_SECONDS
    left = array.array("i", [0])
    try:
        while fcntl.ioctl(fd, termios.FIONREAD, left) == 0 and left[0] and time.monotonic() < end:
            time.sleep(0.001)
    except OSError:
        return  # no pipe


def load(kind: str, program: str) -> tuple[CodeType, ModuleType]:
    """The code of a script or module, and the module __main__ that it fills."""
    main = ModuleType("__main__")
    if kind == "module":
        spec = importlib.util.find_spec(program)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{program}.__main__")
        if spec is None or spec.origin is None:
            sys.exit(f"{sys.executable}: No module named {program}")
        path = sys.argv[0] = spec.origin
        sys.path[0] = os.getcwd()
        main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
    else:
        path = program
    main.__file__ = path
    sys.modules["__main__"] = main
    with open(path, "rb") as file:
        return compile(file.read(), os.path.abspath(path), "exec"), main


def run_under_debugpy(rank: str, port: int, code: CodeType, main: ModuleType) -> None:
    """Run the program once an editor has attached."""
    debugpy = importlib.import_module("debugpy")
    debugpy.listen(("127.0.0.1", port))
    print(f"rank {rank} waits for an editor at 127.0.0.1:{port}", file=sys.stderr, flush=True)
    debugpy.wait_for_client()
    pdb.set_trace = sys.breakpointhook
    exec(code, main.__dict__)


def run_under_pdb(rank: str, place: str, code: CodeType, main: ModuleType) -> None:
    """Run the program until it ends, fails or is quit."""
    link = socket.socket(socket.AF_UNIX)
    folder, name = os.path.split(place)
    # Short, however deep the directory lies: 107 bytes at most, unix(7).
    link.connect(f"/proc/self/fd/{os.open(folder, os.O_PATH)}/{name}")
    terminal = socket.recv_fds(link, 1, 1)[1][0]
    # Once the launcher closes it, or has ended: fcntl(2), O_ASYNC and F_SETSIG.
    fcntl.fcntl(link, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(link, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(link, fcntl.F_SETFL, os.O_ASYNC)
    os.dup2(terminal, 0)
    debugger = RankPdb(rank, link, terminal if os.isatty(terminal) else -1)
    signal.signal(signal.SIGINT, debugger.sigint_handler)
    pdb.set_trace = sys.breakpointhook = lambda *_, **__: debugger.stop_at(sys._getframe(1))
    try:
        debugger.run(code, main.__dict__)
    except Exception as error:  # noqa: BLE001  # the user's own
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))  # until the prompt
        debugger.is_post_mortem = True
        # Frames of pdb itself, and this one, are no part of the program.
        own = error.__traceback__
        while own is not None and own.tb_frame.f_code is not code and own.tb_next is not None:
            own = own.tb_next
        traceback.print_exception(type(error), error, own)
        print("uncaught exception: pdb stands where it was raised", file=sys.stderr, flush=True)
        debugger.reset()
        debugger.interaction(None, own)
        sys.exit(1)


if __name__ == "__main__":
    wrapper = sys.modules["__main__"]  # kept: load() replaces it
    number, way, kind, program = sys.argv[1:5]
    del sys.argv[:4]
    loaded = load(kind, program)
    if way.isdigit():
        run_under_debugpy(number, int(way), *loaded)
    else:
        run_under_pdb(number, way, *loaded)
