"""A script of many ends and doings, of which its first argument names one: see test_same.py."""

import asyncio
import atexit
import contextlib
import copy
import ctypes
import inspect
import json
import logging
import multiprocessing
import os
import pickle
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from multiprocessing import forkserver, resource_tracker, shared_memory
from typing import NoReturn


def exit_with() -> NoReturn:
    """The second argument is a Python expression."""
    sys.exit(eval(sys.argv[2]))


def exit_at_once() -> None:
    atexit.register(print, "never")
    print("not lost")
    os._exit(9)


def raise_plainly() -> None:
    print(1 / 0)


def raise_from_another() -> None:
    try:
        print({}["x"])
    except KeyError as error:
        raise ValueError("odd \udc80 \u4e2d") from error


def raise_during_another() -> None:
    try:
        print({}["x"])
    except KeyError:
        raise SystemExit(3, 4)  # noqa: B904


def raise_in_own_module() -> None:
    import broken  # type: ignore[import-not-found]  # noqa: F401


def import_what_cannot_be_read() -> None:
    import unreadable  # type: ignore[import-not-found]  # noqa: F401


def import_what_is_missing() -> None:
    import no_such_module  # type: ignore[import-not-found]  # noqa: F401


def read_what_is_not_set() -> None:
    os.environ.pop("NO_SUCH_VARIABLE", None)
    print(os.environ.get("NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE" in os.environ)
    print(os.environ["NO_SUCH_VARIABLE"])


def delete_what_is_not_set() -> None:
    del os.environ["NO_SUCH_VARIABLE"]


def recurse() -> None:
    recurse()


def raise_in_thread() -> None:
    thread = threading.Thread(target=raise_plainly, name="one")
    thread.start()
    thread.join()


def raise_in_del() -> None:
    class Odd:
        def __del__(self) -> None:
            raise ValueError("in del")

    Odd()


def raise_with_own_hook() -> None:
    sys.excepthook = lambda *words: print("hook", words[0])
    raise ValueError


def end_in_order() -> None:
    class Last:
        def __del__(self) -> None:
            print("deleted last")

    global last
    last = Last()
    atexit.register(print, "registered first, called last")
    atexit.register(raise_plainly)
    atexit.register(print, "registered last")
    threading.Thread(target=print, args=("in a thread",)).start()


def be_interrupted() -> None:
    print(signal.getsignal(signal.SIGINT))
    os.kill(os.getpid(), signal.SIGINT)


def handle_a_signal() -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()


def be_killed() -> None:
    os.kill(os.getpid(), int(sys.argv[2]))
    print("survived")


def write_to_nobody() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    os.write(write_fd, b"x")


def touch_nothing() -> None:
    ctypes.string_at(0)


def warn() -> None:
    warnings.warn("seen", stacklevel=1)
    warnings.warn("not seen", DeprecationWarning, stacklevel=2)
    logging.warning("seen")
    logging.getLogger("x").error("seen", exc_info=ValueError(1))


def write_in_turns() -> None:
    print("a", end="")
    sys.stderr.write("b")
    sys.stdout.buffer.write(b"c")
    os.write(1, b"d")
    os.write(2, b"e")
    sys.stdout.write("f\xe9\u4e2d")
    subprocess.run(["echo", "g"], check=True)
    pid = os.fork()
    print("h", end="")
    if not pid:
        sys.exit(0)
    os.waitpid(pid, 0)


def write_to_closed() -> None:
    os.close(1)
    print("x")


def read_stdin() -> None:
    print(os.isatty(0), repr(sys.stdin.readline()), os.read(0, 2), sys.stdin.read())
    with contextlib.suppress(EOFError):
        input("more?")


def read_nothing() -> None:
    print(repr(sys.stdin), repr(sys.stdin.buffer), repr(sys.stdin.read()))


def ask() -> None:
    print(repr(input("first? ")), repr(sys.stdin.buffer.readline()), sys.stdin.isatty())


def lose_the_folder() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)
    import decimal

    print(decimal.Decimal(1))
    os.getcwd()


def run_a_loop() -> None:
    async def both() -> None:
        process = await asyncio.create_subprocess_exec("echo", "there")
        print(await process.wait(), len(asyncio.all_tasks()))

    asyncio.run(both())


def start_others() -> None:
    looks = "ls /proc/self/fd; grep Sig[BIC] /proc/self/status"
    for close_fds in (True, False):
        subprocess.run(looks, shell=True, close_fds=close_fds, check=True)
    code = "import sys; print(sys.path, sorted(sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)


class Thing:
    def __init__(self, number: int) -> None:
        self.number = number


def doubled(thing: Thing) -> Thing:
    return Thing(2 * thing.number)


def put(queue: "multiprocessing.Queue[object]") -> None:
    process = multiprocessing.current_process()
    queue.put((Thing.__module__, __name__, process.name, sys.argv))


def use_processes() -> None:
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            print(method, [thing.number for thing in pool.map(doubled, [Thing(1), Thing(2)])])
        queue = context.Queue()
        process = context.Process(target=put, args=(queue,))  # type: ignore[attr-defined]
        process.start()
        print(queue.get())
        process.join()
        print(process.exitcode)
    memory = shared_memory.SharedMemory(create=True, size=10)
    memory.close()
    memory.unlink()
    for one in (forkserver._forkserver, resource_tracker._resource_tracker):
        one._stop()  # type: ignore[attr-defined]  # they would end by themselves, a little later


def copy_all() -> None:
    print(type(copy.deepcopy(os.environ)._data), type(os.environ.copy()))
    print(pickle.loads(pickle.dumps(Thing(3))).number)
    print(inspect.getsource(doubled), inspect.getmodule(doubled), inspect.getsourcefile(Thing))


def run_another() -> None:
    print(runpy.run_path("another.py", run_name="__main__"))
    print(sorted(runpy.run_module("another")))


def import_own() -> None:
    """Of these, two have the name of what is installed."""
    import colorsys

    import own  # type: ignore[import-not-found]

    print(own.NAME, colorsys.__file__, json.loads(own.TEXT))


def draw() -> None:
    """What must differ between any two processes."""
    import random
    import secrets
    import uuid

    import numpy as np

    print(json.dumps({
        "random": random.random(),
        "numpy": float(np.random.rand()),
        "numpy, new": float(np.random.default_rng().random()),
        "uuid": [str(uuid.uuid4()), str(uuid.uuid1())],
        "secrets": secrets.token_hex(),
        "tempfile": tempfile.mktemp(),
        "authkey": bytes(multiprocessing.current_process().authkey).hex(),
        "process": multiprocessing.get_context("fork").Process().name,
        "hash": hash("x"),
    }))  # fmt: skip


if __name__ == "__main__":
    globals()[sys.argv[1]]()
