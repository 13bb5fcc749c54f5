"""Compiles the kernels with numba where it is installed; without it they run as numpy, slower.

A kernel module writes its loops for numba and, beside them, the same in whole-array numpy; it
asks HAVE_NUMBA which of the two to use. PADDOCK_PS_NUMBA=0 forces numpy (tests do).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    if os.environ.get("PADDOCK_PS_NUMBA") == "0":
        raise ImportError
    import numba
    from numba.core.caching import FunctionCache

    HAVE_NUMBA = True
except ImportError:
    HAVE_NUMBA = False
    FunctionCache = object
_is_warned = False


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


class _Cache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """numba's, but the code that cannot be kept, or is not readable, is compiled again."""

    def load_overload(self, sig: object, target_context: object) -> object:
        try:
            return super().load_overload(sig, target_context)
        except (OSError, EOFError) as error:
            _warn(error)
            return None

    def save_overload(self, sig: object, data: object) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(error)


def _warn(error: Exception) -> None:
    """Once a process."""
    global _is_warned
    if not _is_warned:
        _is_warned = True
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        warnings.warn(
            f"compiled code cannot be kept for the next process ({reason}): every start compiles "
            "anew; a directory for it: NUMBA_CACHE_DIR",
            RuntimeWarning,
            stacklevel=2,
        )
