"""Run the function of a call file in a rank: `python call.py CALL RESULTS`.

It is executed as a script, also on hosts without Paddock: it imports the standard library only. The
call file (function.py): a header by marshal, then a pickle of (function, args, kwargs). RESULTS is
a directory: the rank writes its result there as ATTEMPT.RANK.result, or its exception as
ATTEMPT.RANK.error.
"""

from __future__ import annotations

import marshal
import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

EXIT_USAGE = 2
EXIT_EXCEPTION = 1


def main(call_path: str, results: str) -> None:
    """Run the function, and write what it returns or raises. Exits 1 after an exception."""
    with open(call_path, "rb") as file:
        content = file.read()
    header = marshal.loads(content)  # what follows it is not read
    _check_python(header)
    first, last = (list(map(os.path.abspath, header[key])) for key in ("path", "path_end"))
    sys.path[:] = [*first, *(each for each in sys.path[1:] if each not in first), *last]
    sys.argv[:] = [header["name"]]
    try:
        function, args, kwargs = _loads(content[header["size"] :])
        value = function(*args, **kwargs)
        data = dumps(value)
        if len(data) > header["result_bytes_max"]:
            _too_large(header, len(data))
        _write(results, "result", data)
    except Exception as error:  # noqa: BLE001  # the user's own, of any kind
        _fail(error, header, results)


def _check_python(header: Mapping[str, Any]) -> None:
    sent, here = tuple(header["python"]), sys.version_info[:2]
    if sent != here:
        names = [".".join(map(str, each)) for each in (sent, here)]
        sys.stderr.write(
            f"paddock: error: {header['name']} was sent by Python {names[0]}, and {sys.executable} "
            f"on {os.uname().nodename} is Python {names[1]}\n"
            "  hint: use the same minor version on both sides, or launch a script instead\n"
        )
        sys.exit(EXIT_USAGE)


# `import pickle` and `import cloudpickle` cost each rank 40 ms. The C module costs 4, and plain
# functions need these few of cloudpickle's (cloudpickle 3.0 to 3.1, cloudpickle/cloudpickle.py).

LIGHT = ("cloudpickle", "cloudpickle.cloudpickle")


class _LightCloudpickle(types.ModuleType):
    """Stands in for cloudpickle.cloudpickle: what it lacks is taken from the real one."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # the import system asks for __path__
            raise AttributeError(name)
        self.remove()
        from importlib import import_module

        return getattr(import_module(LIGHT[1]), name)

    @classmethod
    def remove(cls) -> None:
        """Let imports find the real modules."""
        for name in LIGHT:
            if type(sys.modules.get(name)) is cls:
                del sys.modules[name]

    @staticmethod
    def _builtin_type(name: str) -> Any:
        return getattr(types, name)

    @staticmethod
    def subimport(name: str) -> types.ModuleType:
        __import__(name)
        return sys.modules[name]

    @staticmethod
    def _make_function(code: Any, names: Any, name: Any, defaults: Any, closure: Any) -> object:
        names["__builtins__"] = __builtins__
        return types.FunctionType(code, names, name, defaults, closure)

    _make_empty_cell = _make_cell = types.CellType

    @staticmethod
    def _function_setstate(function: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
        own, slots = state
        function.__dict__.update(own)
        function.__globals__.update(slots.pop("__globals__"))
        cells = slots.pop("__closure__") or ()
        slots.pop("_cloudpickle_submodules")  # they are imported now
        for mine, sent in zip(function.__closure__ or (), cells):  # noqa: B905  # of equal length
            try:
                mine.cell_contents = sent.cell_contents
            except ValueError:  # it is empty
                continue
        for name, value in slots.items():
            setattr(function, name, value)


def _loads(data: bytes) -> Any:
    """Unpickle the function and its arguments."""
    loads = _pickle_module().loads
    sys.modules.update((name, _LightCloudpickle(name)) for name in LIGHT)
    try:
        return loads(data)
    finally:
        _LightCloudpickle.remove()


def _pickle_module() -> Any:
    """Import _pickle without functools and collections, of which it takes partial: 3 ms a rank."""
    is_alone = "functools" not in sys.modules
    if is_alone:
        import _functools  # type: ignore[import-not-found]  # of CPython, without a stub

        sys.modules["functools"] = _functools
    try:
        import _pickle
    finally:
        if is_alone:
            del sys.modules["functools"]
    return _pickle


def dumps(value: object) -> bytes:
    """Pickle a result; by cloudpickle what pickle cannot do, such as a class of a notebook."""
    try:
        return bytes(_pickle_module().dumps(value, 5))
    except Exception:  # noqa: BLE001  # PicklingError, TypeError, AttributeError: by its kind
        import cloudpickle

        return bytes(cloudpickle.dumps(value, 5))


def _too_large(header: Mapping[str, Any], size: int) -> NoReturn:
    limit = header["result_bytes_max"]
    raise ValueError(
        f"the result of {header['name']} has {size:,} bytes, and at most {limit:,} are returned: "
        "save it to a file and return its path, or raise result_bytes_max"
    )


def _write(results: str, kind: str, data: bytes) -> None:
    """Write a file of this rank as a whole or not at all; 0600."""
    attempt, rank = os.environ["PADDOCK_ATTEMPT"], os.environ["PADDOCK_RANK"]
    os.makedirs(results, 0o700, exist_ok=True)
    path = os.path.join(results, f"{attempt}.{rank}.{kind}")
    fd = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
    os.replace(f"{path}.part", path)


def _fail(error: Exception, header: Mapping[str, Any], results: str) -> NoReturn:
    """Write the exception and its traceback, show it as Python would, and exit with 1."""
    import linecache
    import traceback

    for path, text in header["sources"].items():  # of cells, which are no files
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    frames = error.__traceback__
    while frames is not None and (
        frames.tb_frame.f_code.co_filename == __file__
        or "__tracebackhide__" in frames.tb_frame.f_locals  # as pytest has it
    ):
        frames = frames.tb_next  # begin at the user's own line
    text = "".join(traceback.format_exception(type(error), error, frames))
    row = {"type": type(error).__name__, "text": str(error), "traceback": text}
    try:
        data = dumps({**row, "error": error.with_traceback(None)})
    except Exception:  # noqa: BLE001  # there is a lock or a socket in it
        data = dumps(row)
    try:
        _write(results, "error", data)
    except OSError as problem:
        text += f"paddock: warning: {results} cannot be written: {problem.strerror}\n"
    sys.stdout.flush()
    sys.stderr.write(text)
    sys.stderr.flush()
    sys.exit(EXIT_EXCEPTION)


if __name__ == "__main__":
    main(*sys.argv[1:])
