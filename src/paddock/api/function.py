"""A function and its arguments as a call file, which each rank of a job runs (call.py).

Pickled by cloudpickle: functions of notebooks, of the main script and of test modules by value,
those of importable modules by name. So both sides need the same minor version of Python.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import marshal
import os
import pickle
import sys
from functools import _CacheInfo, _lru_cache_wrapper, partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

from paddock.errors import Problem, UsageError, extra_hint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

CALL_BYTES_MAX = 1 << 28
RESULT_BYTES_MAX = 1 << 28


def pack(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    path: Sequence[str],
    path_end: Sequence[str] = (),
    roots: Sequence[str],
    result_bytes_max: int | None = None,
) -> bytes:
    """Return the content of a call file. path, path_end: what sys.path of the ranks begins and
    ends with; relative entries are of their working directory. roots: directories here whose
    modules the ranks can import; others are sent by value.

    Raises UsageError, which names what cannot be pickled.
    """
    data = _dumps(function, args, kwargs, roots)
    if len(data) > CALL_BYTES_MAX:
        what = f"{name_of(function)} and its arguments have {len(data):,} bytes"
        hint = "save large data to a file and pass its path"
        raise UsageError(f"{what}, and at most {CALL_BYTES_MAX:,} are sent", hint=hint)
    header = {
        "python": list(sys.version_info[:2]), "path": list(path),
        "path_end": list(path_end), "name": name_of(function),
        "size": 0, "result_bytes_max": result_bytes_max or RESULT_BYTES_MAX,
        "sources": _sources(function),
    }  # fmt: skip
    for _ in range(2):  # its size is a number of the same length in both rounds
        header["size"] = len(marshal.dumps(header, 2))
    return marshal.dumps(header, 2) + data


def name_of(function: Callable[..., object]) -> str:
    """Return the name of a function for people."""
    function = inner(function)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).replace("<locals>.", "")


def inner(function: Any) -> Any:
    """Return the function of a functools.partial; else the function itself."""
    while isinstance(function, partial):
        function = function.func
    return function


def own_path() -> list[str]:
    """Return sys.path with absolute entries, for ranks on this machine."""
    try:
        here = os.getcwd()
    except OSError:
        here = os.devnull  # it is gone, and so are modules of it
    return [os.path.join(here, each) for each in sys.path]


def installed_path() -> list[str]:
    """Return the entries of sys.path of this Python's library and installed packages."""
    prefixes = tuple({f"{sys.prefix}/", f"{sys.base_prefix}/"})
    return [each for each in own_path() if each.startswith(prefixes)]


def _dumps(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    roots: Sequence[str],
) -> bytes:
    try:
        import cloudpickle  # noqa: F401  # is it there?
    except ImportError as error:
        if getattr(inner(function), "__module__", "") == "__main__":
            what = "a function of a notebook or of the main script needs cloudpickle"
            raise UsageError(what, hint=extra_hint("python")) from error
        dumps: Callable[[object], bytes] = pickle.dumps
    else:
        dumps = _dumps_by_value
    value = (function, tuple(args), dict(kwargs))
    with _by_value(function, roots):
        try:
            return dumps(value)
        except Exception as error:  # a lock, a socket, a generator: by their kind
            found = list(_unpicklable(function, args, kwargs, dumps))
            if not found:
                found = [Problem(f"{name_of(function)} cannot be pickled: {error}")]
            raise UsageError.of(found) from error


def _dumps_by_value(value: object) -> bytes:
    """Pickle by cloudpickle, and what functools.cache made of a function as that function is.

    cloudpickle names the cached function, and no rank finds it in a module that it lacks
    (cloudpickle 3.1; functools has _lru_cache_wrapper.__reduce__).
    """
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
        def reducer_override(self, each: Any) -> Any:
            if type(each) is not _lru_cache_wrapper or not _is_sent(each):
                return super().reducer_override(each)
            size, typed = each.cache_parameters().values()
            return _lru_cache_wrapper, (each.__wrapped__, size, typed, _CacheInfo)

    def _is_sent(each: Any) -> bool:
        sent = ("__main__", *cloudpickle.list_registry_pickle_by_value())
        return each.__module__ in sent or "<locals>" in each.__qualname__

    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


@contextlib.contextmanager
def _by_value(function: Callable[..., object], roots: Sequence[str]) -> Iterator[None]:
    """Pickle the function's module by value if the ranks cannot import it, as those of pytest."""
    module = sys.modules.get(getattr(inner(function), "__module__", "") or "")
    if module is None or module.__name__ == "__main__" or _is_below(module, roots):
        yield
        return
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_below(module: ModuleType, roots: Sequence[str]) -> bool:
    """Return True if a module is found under its name in one of the directories, or is built in."""
    if (file := getattr(module, "__file__", None)) is None:
        return True
    found, names = os.path.realpath(file), module.__name__.split(".")
    for root in roots:
        path = os.path.join(os.path.realpath(root), *names)
        if found.startswith((f"{path}.", f"{path}{os.sep}__init__.")):
            return True
    return False


def _unpicklable(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    dumps: Callable[[object], bytes],
) -> Iterator[Problem]:
    """Yield a problem for each argument, global and closed-over name that cannot be pickled."""
    name = name_of(function)
    named = {f"argument {number}": each for number, each in enumerate(args)}
    named |= {f"argument '{key}'": each for key, each in kwargs.items()}
    named |= dict(_names_used(function, set()))
    for what, value in named.items():
        try:
            dumps(value)
        except Exception as error:  # noqa: BLE001  # by the kind of the value
            kind = type(value)
            hint = "make it inside the function, or pass what it is made from"
            yield Problem(
                f"{name} cannot be sent to the ranks: {what} is a "
                f"{kind.__module__}.{kind.__qualname__}, which cannot be pickled ({error})", hint
            )  # fmt: skip


def _names_used(function: object, seen: set[int]) -> Iterator[tuple[str, object]]:
    """Yield the globals and closed-over values of a function that is pickled by value."""
    function = inner(function)
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    names = _global_names(function.__code__)
    found = [(f"global '{each}'", function.__globals__.get(each)) for each in names]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # it is empty
            found.append((f"'{name}' of the function around it", cell.cell_contents))
    for name, value in found:
        if isinstance(value, FunctionType) and value.__module__ == function.__module__:
            yield from _names_used(value, seen)
        elif not isinstance(value, (ModuleType, FunctionType, BuiltinFunctionType)):
            yield name, value


def _global_names(code: CodeType) -> set[str]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*map(_global_names, inner))


def _sources(function: object) -> dict[str, str]:
    """Return the text of the cell that a function was defined in, for its tracebacks."""
    code = getattr(inner(function), "__code__", None)
    if code is None or os.path.exists(code.co_filename):
        return {}
    lines = linecache.getlines(code.co_filename)
    return {code.co_filename: "".join(lines)} if lines else {}
