"""Values that are no numbers are found, and only those."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.ps.table.finite import check_finite
from paddock.ps.wire.errors import RequestError
from ps.engines import ENGINES, engine


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@ENGINES
def test_the_first_bad_row_is_found(bad: float, compiled: bool) -> None:
    """A server refuses the push and names the key."""
    grads = np.linspace(-1, 1, 9 * 21, dtype=np.float32).reshape(9, 21)
    with engine(compiled):
        check_finite("t", grads, None)
        grads[7, 0] = grads[4, 20] = bad
        with pytest.raises(RequestError, match="element 4 has a gradient"):
            check_finite("t", grads, None)


def test_largest_and_least_numbers_are_good() -> None:
    """Only NaN and infinity are refused."""
    limits = np.finfo(np.float32)
    good = np.array([[limits.max, -limits.max, limits.smallest_subnormal, 0.0]], np.float32)
    check_finite("t", good, None)
