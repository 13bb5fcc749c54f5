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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn

EXIT_USAGE = 2
EXIT_EXCEPTION = 1


def main(call_path: str, results: str) -> None:
    """Run the function, and write what it returns or raises. Exits 1 after an exception."""
    with open(call_path, "rb") as file:
        content = file.read()
    header = marshal.loads(content)  # what follows it is not read
    _check_python(header)
    sys.path[:] = [*header["path"], *(each for each in sys.path[1:] if each not in header["path"])]
    sys.argv[:] = [header["name"]]
    try:
        function, args, kwargs = _loads(content[header["size"] :])
        value = function(*args, **kwargs)
        data = dumps(value)
        if len(data) > header["result_bytes_max"]:
            _too_large(header, len(data))
        _write(results, "result", data)
    except Exception as error:
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


def _loads(data: bytes) -> Any:
    from pickle import loads

    return loads(data)


def dumps(value: object) -> bytes:
    """Pickle a result; by cloudpickle what pickle cannot do, such as a class of a notebook."""
    import pickle

    try:
        return pickle.dumps(value, 5)
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
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next  # begin at the user's own line
    text = "".join(traceback.format_exception(type(error), error, frames))
    row = {"type": type(error).__name__, "text": str(error), "traceback": text}
    data = _first_that_works(
        lambda: dumps({**row, "error": error.with_traceback(None)}), lambda: dumps(row)
    )
    try:
        _write(results, "error", data)
    except OSError as problem:
        text += f"paddock: warning: {results} cannot be written: {problem.strerror}\n"
    sys.stdout.flush()
    sys.stderr.write(text)
    sys.stderr.flush()
    sys.exit(EXIT_EXCEPTION)


def _first_that_works(*calls: Callable[[], bytes]) -> bytes:
    for call in calls[:-1]:
        try:
            return call()
        except Exception:  # noqa: BLE001, PERF203  # an exception with a lock or a socket in it
            continue
    return calls[-1]()


if __name__ == "__main__":
    main(*sys.argv[1:])
