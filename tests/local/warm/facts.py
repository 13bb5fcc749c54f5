"""A script that prints what it finds around itself, a fact a line: see test_same.py."""

import os
import sys

HERE = {name: repr(thing).partition(" at 0x")[0] for name, thing in globals().items()}
MODULES = sorted(sys.modules)
FILES = [
    (int(name), os.readlink(f"/proc/self/fd/{name}").partition(":")[0])
    for name in sorted(os.listdir("/proc/self/fd"))
    if os.path.exists(f"/proc/self/fd/{name}")  # not the one that lists them
]

import asyncio  # noqa: E402, F401 - some are imported only to be there before, in a warm start
import atexit  # noqa: E402, F401
import ctypes  # noqa: E402
import decimal  # noqa: E402
import fcntl  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402, F401
import linecache  # noqa: E402
import locale  # noqa: E402
import logging  # noqa: E402
import multiprocessing  # noqa: E402
import re  # noqa: E402
import resource  # noqa: E402
import signal  # noqa: E402
import site  # noqa: E402
import sqlite3  # noqa: E402, F401
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import threading  # noqa: E402
import traceback  # noqa: E402
import warnings  # noqa: E402

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.getenv.restype = ctypes.c_char_p
O_LARGEFILE = 0o100000
STATUS = re.compile(
    r"Name|Umask|Uid|Gid|Groups|Threads|NoNewPrivs|Seccomp|TracerPid|Cpus_allowed|Mems_allowed"
    r"|CoreDumping|THP_enabled|Sig(Blk|Ign|Cgt)|S\w*Pnd|Cap\w+"
)
PRCTLS = {"pdeathsig": 2, "subreaper": 37}  # <linux/prctl.h>, PR_GET_*: through a pointer
PRCTLS_PLAIN = {"dumpable": 3, "keepcaps": 7, "seccomp": 21, "timerslack": 30, "no_new_privs": 39}


def text_of(name: str) -> str:
    """A file of /proc/self."""
    with open(f"/proc/self/{name}", encoding="utf-8", errors="surrogateescape") as f:
        return f.read()


def status() -> "dict[str, str]":
    """What the kernel says of this process, but for what it has used."""
    rows = [line.partition(":") for line in text_of("status").splitlines()]
    return {name: rest.strip() for name, _, rest in rows if STATUS.fullmatch(name)}


def prctls() -> "dict[str, int]":
    """What was asked of the kernel for this process."""
    found = {name: int(LIBC.prctl(number, 0, 0, 0, 0)) for name, number in PRCTLS_PLAIN.items()}
    for name, number in PRCTLS.items():
        value = ctypes.c_int(-1)
        LIBC.prctl(number, ctypes.byref(value), 0, 0, 0)
        found[name] = value.value
    return found


def c_environment() -> "list[bytes]":
    """The environment as a library in C sees it."""
    rows = ctypes.POINTER(ctypes.c_char_p).in_dll(LIBC, "environ")
    found = []
    while rows[len(found)]:
        found.append(rows[len(found)] or b"")
    return sorted(found)


def streams() -> "list[object]":
    """How the three files of every program are wrapped."""
    found: list[object] = []
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        found += [stream.name, stream.mode, stream.encoding, stream.errors, stream.newlines]
        found += [stream.line_buffering, stream.write_through, stream.isatty(), stream.closed]
        found += [repr(stream.buffer), repr(getattr(stream.buffer, "raw", None))]
    found += [
        sys.stdin is sys.__stdin__,
        sys.stdout is sys.__stdout__,
        sys.stderr is sys.__stderr__,
    ]
    for number in range(3):
        found.append((os.get_blocking(number), fcntl.fcntl(number, fcntl.F_GETFL) & ~O_LARGEFILE))
    return found


def threads() -> "list[object]":
    """What is known of the main thread."""
    main = threading.main_thread()
    return [
        main.native_id == os.getpid() == threading.get_native_id(),
        main.ident == threading.get_ident(),
        main is threading.current_thread(),
        [thread.name for thread in threading.enumerate()],
        len(os.listdir("/proc/self/task")),
    ]


def processes() -> "list[object]":
    """Where this process is among others."""
    parent = os.getppid()
    return [
        (os.getpgrp() == os.getpid(), os.getsid(0) == os.getsid(parent)),
        text_of(f"../{parent}/cmdline").split("\0")[1:4],
        text_of(f"task/{os.getpid()}/children"),
        text_of("stat").rpartition(")")[2].split()[4:6],  # its terminal
        multiprocessing.current_process().name,
        multiprocessing.parent_process(),
        multiprocessing.active_children(),
        multiprocessing.get_start_method(allow_none=True),
    ]


FACTS = {
    "argv": lambda: [os.fsencode(word) for word in sys.argv],
    "orig_argv": lambda: getattr(sys, "orig_argv", None),
    "main": lambda: HERE,
    "is_main": lambda: sys.modules["__main__"].__dict__ is globals(),
    "builtins": lambda: type(__builtins__),
    "path": lambda: sys.path,
    "path_hooks": lambda: len(sys.path_hooks),
    "meta_path": lambda: [getattr(each, "__name__", type(each)) for each in sys.meta_path],
    "modules": lambda: MODULES,
    "sitecustomize": lambda: sys.modules.get("sitecustomize"),
    "names in sys": lambda: sorted(vars(sys)),
    "flags": lambda: (sys.flags, sys._xoptions, sys.warnoptions, sys.pycache_prefix),
    "warnings": lambda: warnings.filters,
    "executable": lambda: (sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix),
    "site": lambda: (site.ENABLE_USER_SITE, site.getsitepackages(), site.getusersitepackages()),
    "hooks": lambda: [getattr(sys, n) is getattr(sys, f"__{n}__") for n in ("excepthook",
                      "displayhook", "unraisablehook", "breakpointhook")],
    "tracing": lambda: (sys.gettrace(), sys.getprofile(), sys.getrecursionlimit()),
    "frames": lambda: [frame.name for frame in traceback.extract_stack()],
    "sources": lambda: [name for name in linecache.cache if "warm" in name],
    "gc": lambda: (gc.get_threshold(), gc.isenabled(), gc.get_debug(), gc.callbacks, gc.garbage),
    "locale": lambda: (locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(False)),
    "encoding": lambda: (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()),
    "hash": lambda: hash("x") if "PYTHONHASHSEED" in os.environ else None,
    "decimal": decimal.getcontext,
    "logging": lambda: (logging.root.handlers, list(logging.root.manager.loggerDict)),
    "temporary": lambda: (tempfile.tempdir, tempfile.gettempdir()),
    "environment": lambda: sorted(os.environ.items()),
    "in bytes": lambda: sorted(os.environb.items()),
    "in C": c_environment,
    "getenv": lambda: [k for k, v in os.environb.items() if LIBC.getenv(k) != v],
    "cwd": os.getcwd,
    "files": lambda: FILES,
    "inherited": lambda: [os.get_inheritable(number) for number, _ in FILES],
    "streams": streams,
    "status": status,
    "prctl": prctls,
    "handlers": lambda: {int(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
    "timers": lambda: (signal.getitimer(signal.ITIMER_REAL), signal.set_wakeup_fd(-1)),
    "cmdline": lambda: text_of("cmdline"),
    "comm": lambda: text_of("comm"),
    "exe": lambda: os.readlink("/proc/self/exe"),
    "ps": lambda: subprocess.check_output(["ps", "-o", "args=", "-p", str(os.getpid())]),
    "oom": lambda: (text_of("oom_score_adj"), text_of("coredump_filter"), text_of("personality")),
    "cgroup": lambda: text_of("cgroup"),
    "namespaces": lambda: [os.readlink(f"/proc/self/ns/{n}") for n in os.listdir("/proc/self/ns")],
    "limits": lambda: {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource)
                       if n.startswith("RLIMIT_")},
    "nice": lambda: (os.nice(0), os.sched_getscheduler(0), os.sched_getaffinity(0)),
    "threads": threads,
    "processes": processes,
    "modules then": lambda: sorted(sys.modules),
}  # fmt: skip

if __name__ == "__main__":
    for name, fact in FACTS.items():
        try:
            print(f"{name} = {fact()!r}")
        except (OSError, AttributeError) as error:
            print(f"{name} = {error!r}")
