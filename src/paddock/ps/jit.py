"""Compiles the kernels with numba where it is installed; without it they run as numpy, slower.

A kernel module writes its loops for numba; without it the same source runs on whole arrays where
every number of the loops can be an array (``plain``, ``part``, ``choose``), and where not the
module has the same in numpy beside it. HAVE_NUMBA, asked at a call or when an object is made, is
the one switch; PADDOCK_PS_NUMBA=0 forces numpy. Clients and servers alike: decision 0037.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])
# Arrays, as kernels take them.
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]

try:
    if os.environ.get("PADDOCK_PS_NUMBA") == "0":
        raise ImportError
    import numba
    from numba.core.caching import FunctionCache
    from numba.extending import overload

    HAVE_NUMBA = True
except ImportError:
    HAVE_NUMBA = False
    FunctionCache = object
_is_warned = _is_told = False
# A process that compiles a kernel is waited for by those that want it too, not for ever.
TURN_SECONDS = 10.0


def kernel(function: F) -> F:
    """The function compiled when first called, its machine code kept for the next process.

    The GIL is released while it runs. error_model "numpy": no check for division by zero, which
    would keep the loop from being vectorised. fastmath stays off: the same bits everywhere.
    """
    if not HAVE_NUMBA:
        return function
    compiled: F = numba.njit(nogil=True, error_model="numpy")(function)
    try:
        compiled._cache = _Cache(function)  # type: ignore[attr-defined]  # As enable_caching() does.
    except RuntimeError as error:  # No directory that can be written.
        _warn(error)
    return compiled


def plain(function: F) -> F:
    """A kernel as Python runs it: for arrays in place of the loops' numbers."""
    return getattr(function, "py_func", function)


def in_kernels(outside: Callable[..., Any]) -> Callable[[F], F]:
    """Kernels that call `outside` run the decorated function; others go on to call `outside`."""

    def decorate(function: F) -> F:
        if HAVE_NUMBA:
            options = {"error_model": "numpy"}
            overload(outside, jit_options=options, strict=False)(lambda *args: function)
        return function

    return decorate


def part(function: F) -> F:
    """A piece of kernels, of one number or of arrays."""
    return in_kernels(function)(function)


def choose(condition: Any, one: Any, other: Any) -> Any:
    """`one` where the condition holds, else `other`; both are computed."""
    return np.where(condition, one, other)


@in_kernels(choose)
def _choose(condition: Any, one: Any, other: Any) -> Any:
    return one if condition else other


class _Cache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """numba's, but the code that cannot be kept, or is not readable, is compiled again.

    Of several processes that miss a kernel one compiles it, the others load it then.
    """

    _turn: int | None = None

    def load_overload(self, sig: object, target_context: object) -> object:
        found = self._load(sig, target_context)
        if found is None:
            self._turn = self._take_turn()
            if self._turn is not None:
                found = self._load(sig, target_context)
            if found is None:
                _tell(self.cache_path)
            else:
                self._end_turn()
        return found

    def save_overload(self, sig: object, data: object) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(error)
        finally:
            self._end_turn()

    def _load(self, sig: object, target_context: object) -> object:
        try:
            return super().load_overload(sig, target_context)
        except (OSError, EOFError) as error:
            _warn(error)
        except (AttributeError, ImportError, UnpicklingError):
            # Of an older Paddock, by the names it had: saving would read it again.
            Path(self._cache_file._index_path).unlink(missing_ok=True)
        return None

    @property
    def _lock_path(self) -> str:
        return os.path.join(self.cache_path, f"{self._impl.filename_base}.lock")

    def _take_turn(self) -> int | None:
        """A lock of this kernel's; None where there can be none, or it takes too long."""
        try:
            self._impl.locator.ensure_cache_path()
            fd = os.open(self._lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        deadline = time.monotonic() + TURN_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                break
        os.close(fd)
        return None

    def _end_turn(self) -> None:
        if self._turn is not None:
            with suppress(OSError):
                os.unlink(self._lock_path)
            fcntl.flock(self._turn, fcntl.LOCK_UN)  # A child may have inherited it.
            os.close(self._turn)
            self._turn = None


def _tell(directory: str) -> None:
    """Tells, once a process, what takes so long."""
    global _is_told
    if not _is_told:
        _is_told = True
        text = "numba compiles the loops, a few seconds in all; the next process finds them in"
        sys.stderr.write(f"paddock.ps: {text} {directory}\n")
        sys.stderr.flush()


def _warn(error: Exception) -> None:
    """Warns, once a process, that compiled code cannot be kept."""
    global _is_warned
    if not _is_warned:
        _is_warned = True
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        text = f"compiled code cannot be kept for the next process ({reason}): every start compiles"
        text += " anew; a directory for it: NUMBA_CACHE_DIR"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
