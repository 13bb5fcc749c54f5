"""The import profile of a script: the modules that rank 0 imported in earlier runs.

A file for each script and interpreter in ``$XDG_CACHE_HOME/paddock/warm`` (``~/.cache``). A wrong
or missing one is harmless: each rank imports unknown modules, the server needless ones.
Names are kept in the order of their first import, so that importing them one after the other does
what the script did.

Side effects *before* an import must not be lost: a variable that a script sets, a call of what
it has imported or a change to that (side_effects()), or a module that patches others. So names
count up to the first of these only, the *boundary*, and no later run adds to them, since what it
imports may come after the boundary in another. All are forgotten when the lines of the script that
do such things, or their order among its imports, change, and when a warm run meets another boundary
than the one that is known.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import stat
import warnings

from paddock.core.attempt.warming import without
from paddock.local.report.text import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from paddock.core.job import Entrypoint

FILES_MAX = 256  # scripts remembered
READ_BYTES = 1 << 24
# Variables that are read when a device or a group of processes is made, not at import: traced for
# torch, paddle and jax (docs/decisions/0018). That no device was touched before is checked
# (hook/sitecustomize.py).
READ_LATE = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING",  # the driver, cuInit()
    "XLA_FLAGS",  # the first use of a device
    "NCCL_", "GLOO_", "MASTER_",  # a group of processes
    "TOKENIZERS_PARALLELISM",  # every call
)  # fmt: skip
# They patch what is imported after them, and must come first.
PATCHING = ("gevent", "eventlet")
# What programs do with these before their imports is for themselves, or seen by other means.
FOR_ITSELF = ("sys", "os", "warnings", "logging", "time", "argparse", "pathlib", "signal", "gc")


class ImportProfile:
    """The import profile of one script.

    script, base: its path, and its directory with a slash; own files are kept below that.
    names: modules of Python and of installed packages. own: the user's, which are read fresh.
    boundary: (what was done, where, how it is recognised) before the other imports, empty for
        nothing.
    later: how many modules came after it. is_known: a run has told what it imports.
    left_out: name -> why the server does not import it. failed: names that cannot be imported.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.note = ""
        self.script = ""
        self.base = ""
        self.names: list[str] = []
        self.own: dict[str, str] = {}
        self.boundary: tuple[str, ...] = ()
        self.later = 0
        self.left_out: dict[str, str] = {}
        self.failed: set[str] = set()
        self.areas: list[str] = []
        self.is_probed = self.is_known = False
        self._lines: dict[str, str] = {}
        self._side_effects: list[tuple[int, str]] = []

    def forget(self) -> None:
        """Forget everything but the facts of the interpreter."""
        self.names, self.own, self.boundary, self.later, self._lines = [], {}, (), 0, {}
        self.left_out.clear()
        self.failed.clear()
        self.is_known = False

    @property
    def once(self) -> tuple[str, ...]:
        """The names that a server imports."""
        return without(self.names, self.left_out.keys() | self.failed)

    @property
    def late(self) -> str:
        """The reason why names are not complete, for people; "" when they are."""
        if not self.boundary:
            return ""
        what, place, _ = self.boundary
        text = f"each process imports {count(self.later, 'module')} by itself, after "
        if not place:
            return f"{text}{what}, which patches them"
        hint = f" (--env {what}=... sets it before)" if _verb(what) == "sets" else ""
        return f"{text}{place} {_verb(what)} {what}{hint}"

    def add(self, text: str, *, was_warm: bool) -> str:
        """Add the imports that a rank has noted (hook/sitecustomize.py). Returns a note, or "".

        was_warm: modules had been imported before the script began.
        """
        names = dict.fromkeys(self.names)
        new: tuple[str, ...] = ()
        later = 0
        for line in text.splitlines():
            kind, _, rest = line.partition("\0")
            name, _, place = rest.partition("\0")
            if kind == "u":
                self.own.setdefault(name, self._short(place))
            elif kind == "w" and not name.startswith(READ_LATE):
                new = new or (name, place, _line_at(place))
            elif kind == "i" and name.partition(".")[0] in PATCHING:
                new = new or (name.partition(".")[0], "", "")
            elif kind == "i":
                new = new or self._boundary_above(place)
                if new:
                    later += 1
                elif not self.boundary:
                    names[name] = None
        if was_warm and new and (new[0], new[2]) != (self.boundary[:1] + self.boundary[2:]):
            self.forget()
            how = f"{new[1]} {_verb(new[0])} {new[0]}" if new[1] else f"{new[0]} is imported"
            return f"{how}: what was imported before has not seen it; the next start learns anew"
        self.names = list(names)
        if new and not self.boundary:
            self.boundary, self.later = new, later
        self.is_known = True
        for path in self._files():
            if path not in self._lines:
                self._lines[path] = self._lines_of(path)
        return ""

    def _boundary_above(self, line: str) -> tuple[str, ...]:
        """The first import boundary of the script above this line."""
        for number, what in self._side_effects:
            if line.isdecimal() and number < int(line):
                return what, f"{self.script}:{number}", what
        return ()

    def _files(self) -> Iterable[str]:
        return filter(None, (self._short(self.script), *self.own.values()))

    def _short(self, path: str) -> str:
        """The path relative to the script's directory, which differs between submissions."""
        return path[len(self.base) :] if self.base and path.startswith(self.base) else path

    def _lines_of(self, path: str) -> str:
        is_script = path == self._short(self.script)
        effects = [what for _, what in self._side_effects] if is_script else []
        return lines_of(os.path.join(self.base, path), effects)

    def check(self) -> str:
        """Forget the profile if the script has changed. Returns a note for people, or "".

        To be asked before the script runs: it may be edited while it does.
        """
        note = ""
        self._side_effects = side_effects(_source_at(self.script) or b"")
        for path, lines in self._lines.items():
            if self._lines_of(path) != lines:
                note = f"{path} does other things before its imports: learning anew what it imports"
        if note:
            self.forget()
        self._lines = {path: self._lines_of(path) for path in self._files()}
        return note

    def read(self, stamp: str | None) -> None:
        """Read the profile of an earlier run; sets ``note`` if it cannot be used.

        stamp: of the interpreter that is to import it; None to look at it only.
        """
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return
        except OSError as error:
            self.note = f"{self.path} is not used: {error.strerror}"
            return
        with open(fd, "rb") as f:
            what = os.fstat(fd)
            if not stat.S_ISREG(what.st_mode) or what.st_uid != os.geteuid() or what.st_mode & 0o22:
                self.note = f"{self.path} is not used: it is not this user's alone"
                return
            try:
                row = json.loads(f.read(READ_BYTES))
                self.names = _words(row["names"])
                self.own = _texts(row["own"])
                self.boundary = tuple(str(word) for word in row["bar"])
                if len(self.boundary) not in (0, 3):
                    raise ValueError("bar")
                self.later = int(row["later"])
                self._lines = _texts(row["lines"])
                self.areas = _words(row["areas"])
                self.script = self.script or str(row["script"])
                if stamp is None or row["stamp"] == stamp_of(stamp, self.areas):
                    self.left_out = _texts(row["left_out"])
                    self.failed = set(_words(row["failed"]))
                    self.is_probed = bool(row["probed"])
                self.is_known = bool(row["known"])
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self.forget()
                self.note = f"{self.path} is not used: it is damaged"

    def write(self, stamp: str) -> str:
        """Write the profile for later runs. Returns the reason if that failed, or ""."""
        if not self.path:
            return "what was learned is not kept: no home directory; set XDG_CACHE_HOME"
        row = {
            "script": self.script,
            "names": self.names,
            "own": self.own,
            "bar": self.boundary,
            "later": self.later,
            "left_out": self.left_out,
            "failed": sorted(self.failed),
            "lines": self._lines,
            "areas": self.areas,
            "probed": self.is_probed,
            "known": self.is_known,
            "stamp": stamp_of(stamp, self.areas),
        }
        beside = f"{self.path}.{os.urandom(8).hex()}"  # pids are the same in many containers
        try:
            make_folder(os.path.dirname(self.path))
            fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "w", encoding="utf-8") as f:
                json.dump(row, f)
            os.rename(beside, self.path)
        except OSError as error:
            try:
                os.unlink(beside)
            except OSError:
                pass
            return f"what was learned is not kept: {self.path}: {error.strerror}"
        _remove_oldest(os.path.dirname(self.path))
        return ""


def profile_of(
    command: Entrypoint, env: Mapping[str, str], cwd: str, *, is_submitted: bool = False
) -> ImportProfile:
    """The import profile of this command line's script, as learned in earlier runs.

    is_submitted: every submission has a directory of its own. So what tells a script from another
    is where it is below that, and what it imports.
    """
    script = os.path.realpath(command.program) if command.kind == "script" else ""
    where = script or f"{command.program}\0{cwd}"
    if is_submitted:
        where = f"{os.path.relpath(command.program)}\0{_imports_of(script)}"
    what = "\0".join((command.python, command.kind, where))
    name = hashlib.sha256(what.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    place = folder(env)
    learned = ImportProfile(place and os.path.join(place, f"{name}.json"))
    learned.script = script or command.program
    learned.base = os.path.join(os.path.dirname(script) if script else cwd, "")
    return learned


def all_profiles(env: Mapping[str, str]) -> list[ImportProfile]:
    """The import profiles of all scripts, sorted by path; unusable ones are left out."""
    try:
        names = sorted(os.listdir(folder(env)))
    except OSError:
        return []
    found = [
        ImportProfile(os.path.join(folder(env), name)) for name in names if name.endswith(".json")
    ]
    for learned in found:
        learned.read(None)
    return sorted((each for each in found if not each.note), key=lambda each: each.script)


def folder(env: Mapping[str, str]) -> str:
    """The folder of the import profiles; "" for none."""
    cache = env.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        home = os.path.expanduser("~")
        if not os.path.isabs(home):  # a container's user may have none
            return ""
        cache = os.path.join(home, ".cache")
    return os.path.join(cache, "paddock", "warm")


def make_folder(path: str) -> None:
    """Make a directory that is this user's alone. Raises OSError."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        what = os.lstat(path)
        if not stat.S_ISDIR(what.st_mode) or what.st_uid != os.geteuid() or what.st_mode & 0o22:
            raise PermissionError(1, "its directory is not this user's alone") from None


def interpreter(command: Entrypoint, env: Mapping[str, str]) -> str:
    """The identity of an interpreter: its file, and the PYTHON* variables."""
    path = command.python
    if os.sep not in path:
        for place in env.get("PATH", os.defpath).split(os.pathsep):
            if os.access(os.path.join(place, path), os.X_OK):
                path = os.path.join(place, path)
                break
    words = [os.path.realpath(path), *_stat(path)]
    words += sorted(f"{k}={v}" for k, v in env.items() if k.startswith("PYTHON"))
    return "\0".join(words)


def stamp_of(interpreter_: str, areas: Iterable[str]) -> str:
    """A digest that changes when packages are installed or removed."""
    words = [interpreter_, *(word for area in areas for word in (area, *_stat(area)))]
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()


def _verb(what: str) -> str:
    """The verb of a line: "uses" an import (side_effects()) or "sets" a variable."""
    return "uses" if "." in what or what.endswith(("()", "]")) else "sets"


def lines_of(path: str, effects: Iterable[str] = ()) -> str:
    """A digest of a file's imports and of lines that may be import boundaries; "" without any.

    effects: what it does to its imports (side_effects()).

    A text search: a comment that says "environ" costs one slow start.
    """
    lines = _lines_at(path)
    if lines is None:
        return "?"
    bars = (b"environ", b"putenv", *(name.encode() for name in PATCHING))
    if not effects and not any(word in line for line in lines for word in bars):
        return ""
    kept = [line for line in lines if any(word in line for word in (*bars, b"import "))]
    kept += [what.encode("utf-8", "replace") for what in effects]
    return hashlib.sha256(b"\n".join(kept)).hexdigest()


def _imports_of(path: str) -> str:
    """A digest of the lines that import; "" where there is no such file."""
    lines = _lines_at(path)
    if lines is None:
        return ""
    kept = sorted({line for line in lines if line.startswith((b"import ", b"from "))})
    return hashlib.sha256(b"\n".join(kept)).hexdigest()


def _line_at(place: str) -> str:
    """The text of the line at ``file:number``, by which it is recognised in a later version."""
    path, _, number = place.rpartition(":")
    try:
        return (_lines_at(path) or [])[int(number) - 1].decode("utf-8", "replace")
    except (ValueError, IndexError):
        return ""


def _lines_at(path: str) -> list[bytes] | None:
    """The lines of a file without their indents; None where there is none."""
    source = _source_at(path)
    return None if source is None else [line.strip() for line in source.splitlines()]


def _source_at(path: str) -> bytes | None:
    try:
        with open(path, "rb") as f:
            return f.read(READ_BYTES)
    except OSError:
        return None


def _stat(path: str) -> tuple[str, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ("-",)
    return (str(found.st_mtime_ns), str(found.st_size))


def _words(row: object) -> list[str]:
    if not isinstance(row, list):
        raise TypeError(row)
    return [str(word) for word in row]


def _texts(row: Mapping[object, object]) -> dict[str, str]:
    return {str(key): str(text) for key, text in row.items()}


def _remove_oldest(path: str) -> None:
    try:
        with os.scandir(path) as entries:
            found = [(e.stat(follow_symlinks=False).st_mtime, e.path) for e in entries]
        for _, old in sorted(found)[:-FILES_MAX]:
            os.unlink(old)
    except OSError:
        return  # another run has removed it


# ------------------------------------------------ what a script does between its imports


def side_effects(source: bytes) -> list[tuple[int, str]]:
    r"""Lines of a script that change, or call, what it has imported, before it imports more:
    (line, what is changed or called) of each.

    ``torch.set_default_dtype(...)`` or ``json.dumps = mine`` may matter to an import below it,
    which would not see it if that were done before the script begins.

    >>> side_effects(b"import csv, os\ncsv.field_size_limit(9)\nos.nice(1)\nimport json")
    [(2, 'csv.field_size_limit()')]
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each rank says them
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []  # the script's own affair
    names: set[str] = set()
    found: list[tuple[int, str]] = []
    count = 0
    for statement in _outside_functions(tree.body):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            names.update(_bound_by(statement))
            count = len(found)
        for node in _touched_by(statement):
            if _root(node) in names:
                call = "()" if isinstance(statement, ast.Expr) else ""
                found.append((statement.lineno, ast.unparse(node) + call))
    return found[:count]


def _outside_functions(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for name in ("body", "orelse", "finalbody"):
                yield from _outside_functions(getattr(statement, name, ()))
            for handler in getattr(statement, "handlers", ()):
                yield from _outside_functions(handler.body)


def _bound_by(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    above = getattr(statement, "module", None)
    for alias in statement.names:
        top = (above or alias.name).partition(".")[0]
        if top not in FOR_ITSELF and not getattr(statement, "level", 0):
            yield alias.asname or (alias.name if above else top)


def _touched_by(statement: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        yield statement.value.func
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    yield from (each for each in targets if isinstance(each, (ast.Attribute, ast.Subscript)))


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
