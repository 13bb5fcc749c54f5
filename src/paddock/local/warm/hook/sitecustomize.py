"""The warm server, in the user's interpreter, where that looks for a ``sitecustomize``; and the
answers of --debug-ranks.

    interpreter of `python -u train.py`, initialised up to here
      `- serve(): imports what it is told to; for each attempt forks a process in between
           `- that forks the ranks and ends: they are the launcher's children then
                `- rank: takes its output, environment and group, and *returns* from this import.
                   Python goes on to train.py by itself, as if nothing had happened.

Rule: nothing but the standard library, Python 3.8 or newer, and as little of it as possible, since
what is imported here is imported in every rank. Nothing of Paddock: it may not be installed there.

Messages are lists of byte strings without NUL (process.py): the launcher's are in its files, opened
through /proc, so that a large order cannot block it; ours go over the socket CHANNEL.
"""

import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import PathFinder
from _signal import getitimer as _getitimer  # type: ignore[import-not-found]  # no stub

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set
    from types import FrameType, ModuleType
    from typing import Any, TextIO

    Words = list[bytes]
    Lists = list[list[bytes]]
    Pairs = list[tuple[str, str]]
    Variables = dict[bytes, bytes]
else:
    Variables = dict

VARIABLE = "PADDOCK_WARM_SERVER"  # "probe" or "serve", the launcher's pid, CHANNEL, PROGRESS
FIRST_SECONDS = 0.3
LEARN_SECONDS = 600
LEARN_NAMES_MAX = 20000
EXIT_OWN_FAULT = 125
DEBUG_SIGNAL = 10  # above SIGRTMIN: no library is known to use it
REPORT_FD = 191  # contracts/environment.py, as are these
DEBUG_VARIABLE, DEBUG_FDS = "PADDOCK_DEBUG_RANK", (190, 189, 188)
# Devices that may be open: they have no state.
PLAIN_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Harmless reads at import: (variable, reading module).
MENDED = {
    ("PADDLE_TRAINER_ID", "paddle.hapi.logger"),  # set right by _mend_frameworks
    ("all variables", "fsspec.config"),  # looks for FSSPEC_*
    ("all variables", "numba.core.config"),  # looks for NUMBA_*
}


# ------------------------------------------------------------------------------------- messages


def pack(*lists: "Sequence[bytes]") -> bytes:
    r"""Pack lists of byte strings without NUL into one byte string.

    >>> pack([b"a", b"b"], [], [b""])
    b'2\x00a\x00b\x000\x001\x00'
    """
    return b"\0".join(item for words in lists for item in [b"%d" % len(words), *words])


def unpack(data: bytes) -> "Lists":
    r"""Unpack the lists of a pack() result.

    >>> unpack(b"2\0a\0b\0000\0001\0")
    [[b'a', b'b'], [], [b'']]
    """
    fields, lists, at = data.split(b"\0"), [], 0
    while at < len(fields):
        end = at + 1 + int(fields[at])
        lists.append(fields[at + 1 : end])
        at = end
    return lists


def _clean(text: str) -> bytes:
    return text.encode("utf-8", "replace").replace(b"\0", b"?")[:400]


def _tell(kind: bytes, *lists: "Sequence[bytes]") -> None:
    data = pack(*lists)
    data = b"%s %d\n" % (kind, len(data)) + data
    while data:
        data = data[os.write(CHANNEL, data) :]


# ----------------------------------------------------------------------------- whose code it is


def areas() -> "tuple[str, ...]":
    """The directories of the standard library and of installed packages."""
    site = sys.modules["site"]
    found = [os.path.dirname(os.path.abspath(os.__file__))]
    found += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    found.append(getattr(site, "USER_SITE", None) or found[0])
    for prefix in site.PREFIXES:  # where Debian's own Python puts its packages
        found.append(os.path.join(prefix, "lib", "python3", "dist-packages"))
    paths = {p for each in found for p in (each, os.path.realpath(each))}
    return tuple(p + os.sep for p in sorted(paths))


def _is_installed(spec: "ModuleSpec") -> bool:
    """True when the module is part of Python or of an installed package, or made by code."""
    if spec.origin in ("built-in", "frozen"):
        return True
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    return all(str(p).startswith(AREAS) for p in places)


def _users(before: int) -> "Iterator[str]":
    """The names of the user's own modules in sys.modules from this index on."""
    for name, module in list(sys.modules.items())[before:]:
        try:  # not to wake what is lazy
            spec = object.__getattribute__(module, "__dict__").get("__spec__")
        except AttributeError:
            continue
        if isinstance(spec, ModuleSpec) and not _is_installed(spec):
            yield name


def _forget_paths() -> None:
    """Drop the import caches of the user's directories: files may come and go in them."""
    for path in list(sys.path_importer_cache):
        if not (str(path) + os.sep).startswith(AREAS):
            del sys.path_importer_cache[path]


# -------------------------------------------------------------------------------------- loading


def _is_import(frame: "FrameType") -> bool:
    """True for an import; False for importlib.util.find_spec and the like, which only search."""
    # importlib renames it when that is imported.
    return frame.f_globals.get("__name__") in ("_frozen_importlib", "importlib._bootstrap")


class _Guard:
    """Reports the module being imported, and imports that reach the user's own code."""

    def __init__(self, users: "Set[str]") -> None:
        self.users = users
        self.found: list[str] = []
        self.at = b""
        self.count = 0

    def say(self, at: bytes) -> None:
        self.at = at
        os.pwrite(PROGRESS, b"%d %s\0" % (self.count, at), 0)

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: object = None
    ) -> None:
        self.count += 1
        self.say(self.at)
        if path is None and name in self.users and _is_import(sys._getframe(2)):
            self.found.append(name)
        return None


def _data() -> "Variables":
    """The dictionary that os.environ and os.environb share, by bytes."""
    data: Variables = os.environ._data  # type: ignore[attr-defined]  # since Python 3.2
    return data


def _set_data(data: "Variables") -> None:
    os.environ._data = os.environb._data = data  # type: ignore[attr-defined]  # see _data


class _Reads(Variables):
    """os.environ's dictionary; notes who reads a variable that differs between ranks."""

    own: "frozenset[bytes]" = frozenset()
    found: "list[str]" = []  # noqa: RUF012 - each has its own

    def __getitem__(self, key: bytes) -> bytes:
        self._note(key)
        return dict.__getitem__(self, key)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return dict.__contains__(self, key)

    def __iter__(self) -> "Iterator[bytes]":
        self._note(None)  # a rank's are not among them
        return dict.__iter__(self)

    def _note(self, key: object) -> None:
        if key is not None and key not in self.own:
            return
        what = "all variables" if key is None else os.fsdecode(key)
        frame = _caller(sys._getframe(2))
        module = frame.f_globals.get("__name__", "?") if frame else "?"
        if (what, module) not in MENDED:
            why = "some of which differ" if key is None else "which differs"
            self.found.append(f"{module} reads {what}, {why} between ranks")


def _caller(frame: "FrameType | None") -> "FrameType | None":
    """The first frame that is not of os.environ itself."""
    while frame is not None and frame.f_globals.get("__name__") in ("os", "collections.abc"):
        frame = frame.f_back
    return frame


def _open_files() -> "Iterator[tuple[str, str]]":
    """(number, what it leads to) of every open file but the one that lists them."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            yield fd, os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue


def _has_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _has_temporary() -> bool:
    return getattr(sys.modules.get("tempfile"), "_name_sequence", None) is not None


def _has_timer() -> bool:
    return any(_getitimer(which) != (0, 0) for which in (0, 1, 2))


ONCE = {
    "it starts a process": _has_child,
    "it makes a temporary file": _has_temporary,
    "it sets a timer": _has_timer,
}


class _State:
    """Threads, open files and other state that is unsafe to fork, and since which import."""

    def __init__(self) -> None:
        self.threads: dict[str, str] = {}
        self.files: dict[tuple[str, str], str] = {}
        self.found: Pairs = []
        self._seen: set[str] = set()  # of ONCE
        self._maps: set[bytes] = set()
        self._place = os.stat(".")
        self.look("")
        if len(self.threads) > 1:
            self.found.append(("", "it starts a thread"))

    def look(self, name: str) -> None:
        for tid in os.listdir("/proc/self/task"):
            self.threads.setdefault(tid, name)
        for each in _open_files():
            self.files.setdefault(each, name)
        for why, is_so in ONCE.items():
            if why not in self._seen and is_so():
                self._seen.add(why)
                self.found.append((name, why))
        place = os.stat(".")
        if not os.path.samestat(place, self._place):
            self._place = place
            self.found.append((name, "it changes the working directory"))
        with open("/proc/self/maps", "rb") as f:
            for line in f:
                fields = line.split(None, 5)
                if fields[1][1:2] == b"w" and fields[1][3:4] == b"s" and line not in self._maps:
                    self._maps.add(line)
                    what = fields[5].strip() if len(fields) > 5 else b"memory"
                    text = what.decode("utf-8", "replace")
                    self.found.append((name, f"it maps {text} for sharing"))

    def spoiled(self) -> "Pairs":
        """(name, reason) of the modules unsafe to fork; to be called after a trial fork."""
        found = list(self.found)
        for tid in os.listdir("/proc/self/task"):
            if self.threads.get(tid, "?"):
                found.append((self.threads.get(tid, "?"), "it starts a thread"))
        for fd, link in _open_files():
            name = self.files.get((fd, link), "?")
            if name and link not in PLAIN_FILES:
                found.append((name, f"it keeps {link} open"))
        return found


def _unfreeze_at_exit(gc: "ModuleType") -> None:
    """Unfreeze the imported objects at exit, after all other exit handlers."""
    import atexit

    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)


def _begun() -> str:
    """The reason why site code has made a fork unsafe (a thread, an open file), or ""."""
    if len(os.listdir("/proc/self/task")) > 1:
        _try_fork()
        if len(os.listdir("/proc/self/task")) > 1:
            return "it starts a thread"
    for fd, link in _open_files():
        # What Python opens is not inherited: PEP 446.
        if link not in PLAIN_FILES and not os.get_inheritable(int(fd)):
            return f"it keeps {link} open"
    return "it starts a process" if _has_child() else ""


def _try_fork() -> None:
    """Fork once for trial: some libraries end their threads when they are forked."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    _reap(pid)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # an import ignores SIGCHLD: the kernel has reaped it


def _load(place: "Words", own: "Words", users: "Words", names: "Words") -> None:
    """Import these modules; answers the modules that have to be left out, and why."""
    import gc
    from time import monotonic

    began = monotonic()
    state = _State()
    if state.found:
        _tell(b"failed", [_clean(f"before any import of the script, {state.found[0][1]}")])
        return
    _unfreeze_at_exit(gc)
    guard = _Guard({os.fsdecode(name) for name in users})
    plain, reads = _data(), _Reads(_data())
    reads.own, reads.found = frozenset(own), []
    before = dict(plain)
    _set_data(reads)
    sys.meta_path.insert(0, guard)
    failed, spoiled = _import_all(place, names, guard, reads, state)
    sys.meta_path.remove(guard)
    _set_data(plain)
    plain.clear()
    plain.update(dict.items(reads))
    for key in {*before, *plain}:
        if before.get(key) != plain.get(key):
            CHANGED[key] = plain.get(key)
    _forget_paths()
    gc.collect()
    gc.freeze()  # else the first collection of every rank would copy all of it
    guard.say(b"")
    try:
        _try_fork()
    except OSError as error:
        _tell(b"failed", [_clean(f"fork: {error.strerror}")])
        return
    spoiled += state.spoiled()
    took = b"%d" % ((monotonic() - began) * 1000)
    reasons = [_clean(word) for pair in spoiled for word in pair]
    _tell(b"loaded", [took], reasons, failed, _module_files())


def _module_files() -> "Words":
    """The files of all modules, so that the launcher can tell when one has changed."""
    found = []
    for each in list(sys.modules.values()):
        spec = getattr(each, "__dict__", {}).get("__spec__")  # each.__spec__ may import
        origin = getattr(spec, "origin", None)
        if isinstance(origin, str) and getattr(spec, "has_location", False):
            found.append(os.fsencode(origin))
    return found


def _import_all(
    place: "Words", names: "Words", guard: _Guard, reads: _Reads, state: _State
) -> "tuple[Words, Pairs]":
    """Import in order. Returns modules not found, and (name, reason) of those unsafe to fork."""
    first = [os.fsdecode(path) for path in place]  # where the script is, as in every rank
    sys.path[:0] = first
    failed: Words = []
    spoiled: Pairs = []
    for name in map(os.fsdecode, names):
        if name in sys.modules:
            continue
        guard.say(os.fsencode(name))
        before = len(sys.modules)
        try:
            __import__(name)
        except ModuleNotFoundError as error:
            if f"{name}.".startswith(f"{error.name}."):  # the script does without it, too
                failed.append(os.fsencode(name))
            else:
                spoiled.append((name, repr(error)))
        except BaseException as error:  # noqa: BLE001 - also SystemExit; the script will meet it
            spoiled.append((name, repr(error)))  # half a package must not be forked
        for each in (*guard.found, *_users(before)):
            spoiled.append((name, f"it imports {each}, which is not an installed package"))
        spoiled += [(name, why) for why in reads.found]
        guard.found, reads.found = [], []
        state.look(name)
        if sys.path[: len(first)] != first:
            spoiled.append((name, "it changes the beginning of sys.path"))
            sys.path[:0] = first
    del sys.path[: len(first)]
    return failed, spoiled


# -------------------------------------------------------------------------------------- forking


def _fork(launcher: int, lists: "Lists") -> "Words | None":
    """Fork ranks. Returns the rank's own list in a rank, None in the server."""
    said, ports, common, args, ranks = lists[0], lists[1], lists[2], lists[3], lists[4:]
    read_fd, write_fd = os.pipe()
    try:
        middle = os.fork()
    except OSError as error:
        os.close(read_fd)
        os.close(write_fd)
        _tell(b"failed", [_clean(f"fork: {error.strerror}")])
        return None
    if middle:
        os.close(write_fd)
        with open(read_fd, "rb") as f:
            data = f.read()
        _reap(middle)  # from here on the ranks are the launcher's children
        if data.startswith(b"!") or not data:
            _tell(b"failed", [data[1:] or b"the process that forks the ranks died"])
        else:
            _tell(b"forked", data.split())
        return None
    os.close(read_fd)
    go_read, go_write = os.pipe()
    middle, pids = os.getpid(), []
    try:
        for at in range(0, len(ranks), 2):
            mine = _open_all(launcher, ranks[at][1:])
            pid = os.fork()
            if not pid:
                os.close(write_fd)
                os.close(go_write)
                _wait_for_parent(middle, go_read, launcher)
                if at:
                    _wait_for_first(ports)
                _become(mine, said, [*common, *ranks[at + 1]])
                _take_arguments(args)
                return ranks[at]
            pids.append(pid)
            os.setpgid(pid, pid)
            os.pwrite(PROGRESS, b"%d \0" % pid, 0)
            for fd in {*mine}:
                if fd is not None:
                    os.close(fd)
        os.write(go_write, b"!" * len(pids))
        os.write(write_fd, b" ".join(b"%d" % pid for pid in pids))
    except OSError as error:
        for pid in pids:
            os.kill(pid, 9)
            _reap(pid)
        os.write(write_fd, b"!" + _clean(f"fork of rank {len(pids)}: {error.strerror}"))
    os._exit(0)


def _open_all(launcher: int, words: "Words") -> "list[int | None]":
    """Open the files of a rank: "null", or "0" for ours.

    "N M": descriptor N of the launcher, with the flags M of open(2). "stdin N M": its standard
    input, a file from byte N on, in mode M.
    """
    opened: dict[bytes, int | None] = {b"0": None}
    for word in words:
        if word == b"null":
            opened[word] = os.open("/dev/null", os.O_RDONLY)
        elif word.startswith(b"stdin "):
            offset, mode = map(int, word.split()[1:])
            opened[word] = fd = os.open(f"/proc/{launcher}/fd/0", mode | os.O_NOCTTY)
            if offset:
                os.lseek(fd, offset, 0)
        elif word not in opened:
            number, flags = map(int, word.split())
            opened[word] = os.open(f"/proc/{launcher}/fd/{number}", os.O_WRONLY | flags)
    return [opened[word] for word in words]


def _wait_for_parent(middle: int, go_read: int, launcher: int) -> None:
    """Wait until the process in between has ended: user code must see its lasting parent."""
    from time import sleep

    os.setpgid(0, 0)
    if not os.read(go_read, 1):
        os._exit(EXIT_OWN_FAULT)  # it has died before all were there
    os.close(go_read)
    while os.getppid() == middle:
        sleep(0.0002)
    if os.getppid() != launcher:
        os._exit(EXIT_OWN_FAULT)


def _wait_for_first(ports: "Words") -> None:
    """Wait until the first rank listens: a rank whose connection is refused waits longer.

    Paddle tries again after 3 s (phi/core/distributed/store/tcp_utils.h), gRPC after 1 s.
    """
    from time import monotonic, sleep

    wanted = {b"%04X" % int(port) for port in ports}
    until = monotonic() + FIRST_SECONDS * bool(wanted)
    while monotonic() < until:
        for path in ("/proc/net/tcp", "/proc/net/tcp6"):
            try:
                with open(path, "rb", 0) as f:
                    lines = f.read(1 << 14).splitlines()  # those that listen come first
            except OSError:
                return
            for line in lines[1:]:
                fields = line.split(None, 4)
                if fields[3] == b"0A" and fields[1].rpartition(b":")[2] in wanted:
                    return
        sleep(0.01)


def _become(files: "list[int | None]", said: "Words", environment: "Words") -> None:
    """Take the output, environment and working state of one rank."""
    os.close(CHANNEL)
    os.close(PROGRESS)
    for number, fd in enumerate(files):
        if fd is not None:
            os.dup2(fd, (0, 1, 2, REPORT_FD)[number])
    for fd in {*files}:
        if fd not in (None, REPORT_FD):
            os.close(fd)
    if files[0] is not None and sys.stdin is not None:
        sys.stdin = _reopened(sys.stdin)
        sys.__stdin__ = sys.stdin  # type: ignore[misc,assignment]  # Python itself sets both
    os.write(1, said[0])
    os.write(2, said[1])
    entries = [entry.partition(b"=") for entry in environment]
    wanted: dict[bytes, bytes | None] = {key: text for key, _, text in entries}
    wanted.update(CHANGED)  # by what was imported
    for name in list(os.environb):
        if wanted.get(name) is None:
            del os.environb[name]
    for name, value in wanted.items():
        if value is not None and os.environb.get(name) != value:
            os.environb[name] = value


def _take_arguments(args: "Words") -> None:
    """Set sys.argv to the arguments of this launch: the server may be of an earlier one."""
    wanted, old = [os.fsdecode(word) for word in args], sys.argv[1:]
    if wanted != old:
        sys.argv[1:] = wanted
        if hasattr(sys, "orig_argv"):  # Python 3.10
            sys.orig_argv[len(sys.orig_argv) - len(old) :] = wanted


def _reopened(old: "TextIO") -> "TextIO":
    """stdin anew: the old object remembers what kind of file descriptor 0 was."""
    import io

    raw = io.FileIO(0, "r", closefd=False)
    raw.name = "<stdin>"
    buffer = io.BufferedReader(raw)
    new = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", write_through=True)
    new.mode = "r"  # type: ignore[misc]  # as Python itself does
    return new


# ------------------------------------------------------------------- what must differ in a rank


def _mend_state() -> None:
    """Give the rank its own random state and keys; `random` and `tempfile` see to themselves."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()
    threading = sys.modules.get("threading")
    if threading is not None:
        threading.main_thread()._set_native_id()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        torch.default_generator.seed()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        config = process.current_process()._config
        config["authkey"] = process.AuthenticationString(os.urandom(32))
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        for last in util._finalizer_registry.values():
            last._pid = os.getpid()  # it is not run in any other process


def _mend_frameworks() -> None:
    """Set anew what a framework read from the environment when it was imported."""
    base = sys.modules.get("paddle.base")
    if base is not None:
        known = base.core.globals()
        flags = {k: v for k, v in os.environ.items() if k.startswith("FLAGS_selected_")}
        flags = {k: v for k, v in flags.items() if k in known}
        if flags:
            base.set_flags(flags)
        _hasten_store(base.core)
    if "paddle.hapi.logger" in sys.modules and os.environ.get("PADDLE_TRAINER_ID", "0") != "0":
        # Only rank 0 logs to the console.
        del sys.modules["logging"].getLogger("hapi").handlers[:]
    if "torch" in sys.modules:
        # Its store asks for the name behind every connection. Ranks that start together ask many
        # at once, of which a name server may drop some; each then waits 5 s (resolv.conf(5)).
        os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:5")


def _hasten_store(core: "Any") -> None:
    """Have Paddle's store send its small requests at once.

    It writes each in several parts, of which the second waits 40 ms for the other side to
    acknowledge the first (RFC 896 and 1122), some five times for every other rank, in turn.
    """
    create = getattr(core, "create_or_get_global_tcp_store", None)
    if create is None:
        return

    def created() -> object:
        from socket import IPPROTO_TCP, TCP_NODELAY, socket

        core.create_or_get_global_tcp_store = create
        before = set(_open_files())
        store = create()
        for fd, link in set(_open_files()) - before:
            try:
                if link.startswith("socket:"):
                    with socket(fileno=os.dup(int(fd))) as its:
                        its.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
            except OSError:
                continue  # closed, or not of TCP
        return store

    core.create_or_get_global_tcp_store = created


# ------------------------------------------------------------------------------------- learning


def _line_of_script() -> str:
    """The line of the script, outside its functions, that is running now."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return str(frame.f_lineno)
        frame = frame.f_back
    return ""


class _Learner:
    """Notes what the script imports from installed packages, and when it changes variables."""

    def __init__(self, path: str, own: "frozenset[bytes]") -> None:
        from time import monotonic

        self.monotonic = monotonic
        self.until = monotonic() + LEARN_SECONDS
        self.left = LEARN_NAMES_MAX
        self.path, self.own, self.pid = path, own, os.getpid()

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: object = None
    ) -> None:
        if self.is_over() or not _is_import(sys._getframe(2)):
            return None
        above = [str(p) for p in path or ()]
        if above and (above[0] + os.sep).startswith(AREAS):
            self.note("i", name, _line_of_script())
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and _is_installed(spec):
            self.note("i", name, _line_of_script())
        elif spec is not None:
            self.note("u", name, spec.origin or "" if spec.has_location else "")
        return None

    def is_over(self) -> bool:
        return self.left <= 0 or os.getpid() != self.pid or self.monotonic() > self.until

    def note(self, *words: str) -> None:
        self.left -= 1
        line = "\0".join(words).replace("\n", "?") + "\n"
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.write(fd, line.encode("utf-8", "surrogateescape"))
            os.close(fd)
        except OSError:
            self.left = 0

    def changed(self, key: bytes) -> None:
        """A variable was set or deleted: by an import (also in the server), or by the script?"""
        if key in self.own or self.is_over():
            return
        frame = _caller(sys._getframe(3))
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith("<frozen importlib"):
                return
            is_script = frame.f_globals.get("__name__") == "__main__"  # also of -m PACKAGE
            if is_script or not file.startswith((*AREAS, "<frozen")):
                self.note("w", os.fsdecode(key), f"{file}:{frame.f_lineno}")
                return
            frame = frame.f_back


class _Writes(Variables):
    """os.environ's dictionary in the rank that learns; notes changes."""

    learner: "_Learner"

    def __setitem__(self, key: bytes, text: bytes) -> None:
        if self.get(key) != text:
            self.learner.changed(key)
        dict.__setitem__(self, key, text)

    def __delitem__(self, key: bytes) -> None:
        if key in self:
            self.learner.changed(key)
        dict.__delitem__(self, key)

    def __reduce_ex__(self, protocol: object) -> "tuple[type, tuple[Variables]]":
        return dict, (dict(self),)  # a copy is no environment


def _learn(path: str, own: "Words") -> None:
    learner = _Learner(path, frozenset(own))
    learner.note()  # an empty line: the rank was learning
    writes = _Writes(_data())
    writes.learner = learner
    _set_data(writes)
    sys.meta_path.insert(0, learner)


# ----------------------------------------------------------------------------------------- serve


def _leave_path() -> None:
    """Take this directory out of the interpreter again, and of what imports may start."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != here]
    sys.path_importer_cache.pop(here, None)
    _, colon, theirs = os.environ.pop("PYTHONPATH").partition(os.pathsep)
    if colon:
        os.environ["PYTHONPATH"] = theirs


def _orders() -> "Iterator[tuple[bytes, Lists]]":
    """Orders of the launcher, (kind, lists), until it has gone."""
    held = b""
    while True:
        part = os.read(CHANNEL, 1 << 16)
        if not part:
            os._exit(0)
        held += part
        while b"\n" in held:
            line, _, held = held.partition(b"\n")
            kind, path = line.split(b" ", 1)
            with open(path, "rb") as f:
                data = f.read()
            yield kind, unpack(data)


def _serve(launcher: int) -> "tuple[Words, Words]":
    """Serve until the launcher has gone. Returns in a rank only."""
    own: Words = []
    why = _begun()
    if why:
        _tell(b"failed", [_clean(f"code of a .pth file runs before the script: {why}")])
    for kind, lists in _orders():
        if kind == b"load":
            own = lists[1]
            _load(*lists)
            continue
        rank = _fork(launcher, lists)
        if rank is not None:
            return rank, own
    raise AssertionError("unreachable: _orders ends the process")


def _run_theirs() -> None:
    """Run the user's own sitecustomize, which ours has hidden.

    Raises ImportError, as the import system does, if there is none: site takes that as usual.
    """
    spec = PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        raise ImportError(name="sitecustomize")
    from _frozen_importlib import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _main(words: "list[str]") -> None:
    global AREAS, CHANNEL, PROGRESS
    AREAS = areas()
    CHANNEL, PROGRESS = int(words[2]), int(words[3])
    _leave_path()
    del os.environ[VARIABLE]
    if words[0] == "probe":
        _tell(b"hello", [_clean(p) for p in AREAS])
        os._exit(0)
    try:
        rank, own = _serve(int(words[1]))
        _mend_state()
        _mend_frameworks()
        if rank[0]:
            _learn(os.fsdecode(rank[0]), own)
    except BaseException:  # noqa: BLE001 - half a rank must not go on
        sys.excepthook(*sys.exc_info())
        os._exit(EXIT_OWN_FAULT)
    if DEBUG_VARIABLE in os.environ:
        _debug()
    _run_theirs()


# ----------------------------------------------------------------------------------- debug ranks


def _debug() -> None:
    """Have this rank answer watch/debugged.py: its stack on a signal, its collective over a pipe.

    faulthandler writes it also while the main thread is stuck in C code; other threads run on then.
    """
    import faulthandler
    from _signal import SIG_DFL, SIGRTMIN, getsignal
    from _thread import start_new_thread
    from fcntl import F_SETFL, fcntl

    del os.environ[DEBUG_VARIABLE]
    number = SIGRTMIN + DEBUG_SIGNAL
    if getsignal(number) != SIG_DFL:
        return
    try:
        memory = os.memfd_create(f"paddock-stack-{number}")
        fcntl(memory, F_SETFL, os.O_APPEND)
        for fd, own in zip((memory, *os.pipe()), DEBUG_FDS):  # noqa: B905 - Python 3.10
            os.dup2(fd, own, inheritable=False)
            os.close(fd)
    except OSError:
        return  # too few files
    faulthandler.register(number, DEBUG_FDS[0], all_threads=False)
    start_new_thread(_tell_collectives, ())


def _tell_collectives() -> None:
    """Write torch's collective that the rank is in, or else its latest, whenever asked."""
    try:
        while os.read(DEBUG_FDS[1], 1):
            os.write(DEBUG_FDS[0], _collective().encode())
    except OSError:
        return  # the script has closed all files


def _collective() -> str:
    """The process group and number of a collective, and "in" or "after"; "-" if not known."""
    from json import loads

    library = sys.modules.get("torch._C._distributed_c10d")
    recorders = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
    try:
        dumps = [loads(getattr(library, r)(True, False)) for r in recorders if hasattr(library, r)]
        entries = [e for dump in dumps for e in dump.get("entries", ()) if not e["is_p2p"]]
        entries.sort(key=lambda e: e["time_created_ns"])
        # Not by state: gloo has one only, also of those that are over.
        found = next((e for e in entries if not e["retired"]), entries[-1])
        place = "after" if found["retired"] else "in"
        return f"{found['process_group'][0]} {found['collective_seq_id']} {place}"
    except Exception:  # noqa: BLE001 - empty recorders, or entries of another shape
        return "-"


AREAS: "tuple[str, ...]" = ()
CHANGED: "dict[bytes, bytes | None]" = {}
CHANNEL = PROGRESS = -1
if VARIABLE in os.environ:
    _main(os.environ[VARIABLE].split())
elif DEBUG_VARIABLE in os.environ and __name__ == "sitecustomize":
    _leave_path()
    _debug()
    _run_theirs()
