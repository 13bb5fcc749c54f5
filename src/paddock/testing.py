"""Distributed tests in two lines: @ranks(2) runs the body of a test in every rank of a launch.

    from paddock.testing import ranks

    @ranks(2)
    def test_the_sum_is_the_same_everywhere(): ...

It works under pytest and unittest, with fixtures and parametrize whose values can be pickled.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
import shutil
import sys
import tempfile

import paddock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

TIMEOUT_SECONDS = 60.0
REWRITE = "@pytest_ar"  # in a module whose assertions pytest has rewritten (assertion/rewrite.py)


def ranks(
    nproc: int | str, *, timeout: float = TIMEOUT_SECONDS, **options: Any
) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Return a decorator that runs a test in so many ranks, on this machine.

    timeout: seconds; a test that hangs fails, and says which ranks wait. options: others of
    paddock.launch, such as env={"OMP_NUM_THREADS": "1"} or warm="keep".

    The test fails when a rank does, with the traceback of the one that failed first. It is skipped
    when a rank is: skip in all of them, or before they wait for each other. What rank 0 prints is
    the test's output. A run that succeeds leaves no record.

    >>> @ranks(2)
    ... def test_every_rank_knows_its_number() -> None:
    ...     import paddock
    ...
    ...     assert paddock.rank() < paddock.world_size() == 2
    >>> test_every_rank_knows_its_number()
    """

    if not isinstance(nproc, (int, str)):
        raise TypeError(f"ranks({nproc!r}): not a number of ranks; write @ranks(2)")
    if wrong := [name for name in options if name not in (paddock.launch.__kwdefaults__ or {})]:
        raise TypeError(f"ranks() has no option {', '.join(wrong)}, and neither has paddock.launch")

    def decorate(test: Callable[..., object]) -> Callable[..., None]:
        if isinstance(test, type):
            raise TypeError(f"@ranks({nproc}) is for a test; write it above each of {test}")
        if inspect.isgeneratorfunction(test) or inspect.isasyncgenfunction(test):
            raise TypeError(f"{test.__qualname__} yields, so its body would not run")

        @functools.wraps(test)
        def run_in_ranks(*args: object, **kwargs: object) -> None:
            __tracebackhide__ = True
            _run(test, args, kwargs, {"nproc": nproc, "timeout": timeout, **options})

        return run_in_ranks

    return decorate


def _run(test: Callable[..., object], args: Any, kwargs: Any, options: dict[str, Any]) -> None:
    __tracebackhide__ = True
    from paddock.api.launch import SHOWN

    if rank := os.environ.get("PADDOCK_RANK"):
        raise RuntimeError(f"{test.__name__} is a test for ranks, and was called in rank {rank}")
    if args and hasattr(args[0], "_outcome"):  # of a unittest.TestCase: it holds open files
        args = (copy.copy(args[0]), *args[1:])
        vars(args[0]).update({"_outcome": None, test.__name__: None})
    logs = tempfile.mkdtemp(prefix="paddock-test-")
    flags = ["--log-dir", logs, *options.pop("flags", ())]
    try:
        with _by_value(test):
            body = functools.partial(_body, test, args, kwargs)
            setattr(body, SHOWN, test.__qualname__)
            run = paddock.launch(body, name=test.__name__, flags=flags, **options)
        endings = [each for each in run.results() if each is not None]
    except paddock.UsageError as error:
        kind, reason = "Failed", "\n".join(_unpicklable(kwargs)) or str(error)
    except paddock.RankFailedError as error:
        kind, reason = "Failed", _text(error)
    except paddock.PaddockError as error:  # a time-out; or it exited with 0, and did not return
        kind, reason = "Failed", str(error)
    else:
        run.delete()
        kind, reason = max(endings, default=("", ""))  # XFailed before Skipped
    finally:
        with contextlib.suppress(OSError):  # there are logs in it
            os.rmdir(logs)
    if kind != "Failed":  # its logs stay
        shutil.rmtree(logs, ignore_errors=True)
    if kind:
        _end(kind, reason)


def _body(test: Callable[..., object], args: Any, kwargs: Any) -> tuple[str, str] | None:
    """Run the test in a rank. Returns how it ended where that is no failure: kind and reason."""
    __tracebackhide__ = True
    try:
        pending = test(*args, **kwargs)
        if inspect.iscoroutine(pending):
            import asyncio

            asyncio.run(pending)
    except BaseException as error:
        kind = type(error).__name__
        if kind in ("Skipped", "SkipTest", "XFailed"):  # of pytest and unittest
            return kind, str(error)
        if kind == "Failed":  # of pytest, and no Exception
            raise AssertionError(str(error)).with_traceback(error.__traceback__) from None
        raise
    return None


def _text(error: paddock.RankFailedError) -> str:
    """Return a failure as text; its first line is the one of pytest's summary."""
    raised = error.__cause__
    first, *_ = f"{type(raised).__name__}: {raised}".splitlines() if raised else [error.message]
    _, *lines = str(error).removeprefix(error.message).splitlines()
    return "\n".join([f"rank {error.rank} failed first: {first}", *lines, error.hint])


def _unpicklable(kwargs: dict[str, object]) -> Iterator[str]:
    """Yield a sentence for each fixture whose value cannot be sent."""
    import cloudpickle

    for name, value in kwargs.items():
        try:
            cloudpickle.dumps(value)
        except Exception:  # noqa: BLE001  # by the kind of the value
            kind = type(value).__qualname__
            yield f"fixture '{name}' is a {kind}, which cannot be sent to the ranks"


def _end(kind: str, reason: str) -> NoReturn:
    if "pytest" in sys.modules:
        import pytest

        if kind == "Failed":
            pytest.fail(reason, pytrace=False)
        if kind == "XFailed":
            pytest.xfail(reason)
        pytest.skip(reason)
    if kind == "Failed":
        raise AssertionError(reason)
    from unittest import SkipTest

    raise SkipTest(reason)


@contextlib.contextmanager
def _by_value(test: Callable[..., object]) -> Iterator[None]:
    """Send the code that pytest has rewritten: an import in the ranks would not rewrite it."""
    import cloudpickle

    module = sys.modules[test.__module__]
    names = module.__dict__
    rewrite = names.get(REWRITE)
    if rewrite is not None:
        names[REWRITE] = _Rewrite()
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
        if rewrite is not None:
            names[REWRITE] = rewrite


class _Rewrite:
    """pytest's module for rewritten assertions, which a rank imports when one fails: 0.15 s."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        from importlib import import_module

        return getattr(import_module("_pytest.assertion.rewrite"), name)
