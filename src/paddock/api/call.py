"""Run the function of a call file in a rank: `python call.py CALL RESULTS`.

It is executed as a script, also on hosts without Paddock: it imports the standard library only. The
call file (function.py): a header by marshal, then a pickle of (function, args, kwargs). RESULTS is
a directory: the rank writes its result there as ATTEMPT.ROLE.RANK.SIZE.result, or its exception as
ATTEMPT.ROLE.RANK.SIZE.error.
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
    attempt = os.environ["PADDOCK_ATTEMPT"]  # read before the function changes them
    place = [attempt, *(os.environ[f"PADDOCK_{key}"] for key in ("ROLE", "RANK", "WORLD_SIZE"))]
    own = os.path.join(os.path.abspath(results), ".".join(place))
    if attempt != "0":
        _remove_older(os.path.dirname(own), int(attempt))
    first, last = (list(map(os.path.abspath, header[key])) for key in ("path", "path_end"))
    sys.path[:] = [*first, *(each for each in sys.path[1:] if each not in first), *last]
    sys.argv[:] = [header["name"]]
    try:
        function, args, kwargs = _loads(content[header["size"] :])
        value = function(*args, **kwargs)
        _write(f"{own}.result", _result(value, header))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  # the user's own, of any kind
        _fail(error, header, own)


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
    """Stands in for cloudpickle and its module: what it lacks is taken from the real one."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and self.__name__ == LIGHT[1]:  # each import asks for __path__
            raise AttributeError(name)
        self.remove()
        from importlib import import_module

        return getattr(import_module(self.__name__), name)

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


def _result(value: object, header: Mapping[str, Any]) -> bytes:
    """Pickle a result. Raises TypeError if it cannot be pickled, ValueError if it is too large."""
    name, limit, kind = header["name"], header["result_bytes_max"], type(value)
    try:
        data = dumps(value)
    except Exception as error:  # noqa: BLE001  # by the kind of the value
        what = f"the result of {name} is a {kind.__module__}.{kind.__qualname__}"
        raise TypeError(f"{what}, which cannot be pickled ({error})") from None
    if len(data) > limit:
        raise ValueError(
            f"the result of {name} has {len(data):,} bytes, and at most {limit:,} are returned: "
            "save it to a file and return its path, or raise result_bytes_max"
        )
    return data


def dumps(value: object) -> bytes:
    """Pickle a result; by cloudpickle what pickle cannot do, such as a class of a notebook."""
    try:
        return bytes(_pickle_module().dumps(value, 5))
    except Exception as error:  # noqa: BLE001  # PicklingError, TypeError, AttributeError
        try:
            import cloudpickle
        except ImportError:
            raise error from None
        return bytes(cloudpickle.dumps(value, 5))


def _remove_older(results: str, attempt: int) -> None:
    """Remove the results of earlier attempts: they are no part of what this one returns."""
    for name in os.listdir(results) if os.path.isdir(results) else ():
        if name.endswith(".result") and int(name.partition(".")[0]) < attempt:
            try:
                os.unlink(os.path.join(results, name))
            except FileNotFoundError:
                continue  # another rank was faster


def _write(path: str, data: bytes) -> None:
    """Write a file of this rank as a whole or not at all; 0600."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    fd = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
    os.replace(f"{path}.part", path)


def _fail(error: BaseException, header: Mapping[str, Any], own: str) -> NoReturn:
    """Write the exception and its traceback, show it as Python would, and exit with 1."""
    import contextlib
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
    row: dict[str, object] = {"type": type(error).__name__, "text": "", "traceback": text}
    with contextlib.suppress(Exception):  # its __str__ raises; there is a lock or a socket in it
        row["text"] = str(error)
        row["error"] = dumps(error.with_traceback(None))
    try:
        _write(f"{own}.error", dumps(row))
    except OSError as problem:
        text += f"paddock: warning: {own}.error cannot be written: {problem.strerror}\n"
    sys.stdout.flush()
    sys.stderr.write(text)
    sys.stderr.flush()
    sys.exit(EXIT_EXCEPTION)


if __name__ == "__main__":
    main(*sys.argv[1:])
