"""Numbers in text, as the kernels read them: up to the next blank, tab, end of line or of block.

Every function is given the block as uint8 and where to begin, and says where it stopped and
whether what it read is a number: nothing else may stand before the blank.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from paddock.ps.jit import kernel

Text = NDArray[np.uint8]
BLANK, NEWLINE, MINUS, PLUS, POINT, ZERO = 32, 10, 45, 43, 46, 48
ID_MAX = (1 << 64) - 1  # Paddle's feature signs are unsigned; beyond 2**63 they wrap to int64.
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
NUMBER_END = float(1 << 128) - float(1 << 103)  # From here on float32 is infinite.
_TENTHS = np.uint64(ID_MAX // 10)
# Powers of ten that float64 has exactly: one rounding, as float() does.
_EXACT_DIGITS, _EXACT_POWER = np.uint64(1 << 53), 22
_TEN = np.uint64(10)
_POWERS = 10.0 ** np.arange(_EXACT_POWER + 1)


@kernel
def skip_field(text: Text, at: int) -> int:
    """The index of the blank, tab or end behind the field at `at` of text, (n,) uint8."""
    while at < text.size and text[at] > BLANK:
        at += 1
    return at


@kernel
def read_integer(text: Text, at: int) -> tuple[int, int, bool]:
    """(value, its end, is it an int64) of text, (n,) uint8; above 2**63 it wraps."""
    negative = False
    if at < text.size and (text[at] == MINUS or text[at] == PLUS):
        negative = text[at] == MINUS
        at += 1
    begin, value, fits = at, np.uint64(0), True
    while at < text.size:
        digit = np.uint64(text[at]) - np.uint64(ZERO)  # Below "0" it wraps to a large one.
        if digit > np.uint64(9):
            break
        if value > _TENTHS or (value == _TENTHS and digit > np.uint64(5)):
            fits = False
        value = value * _TEN + digit
        at += 1
    ok = fits and at > begin and (at == text.size or text[at] <= BLANK)
    if negative:
        ok = ok and value <= np.uint64(1 << 63)
        value = np.uint64(0) - value
    return np.int64(value), at, ok


@kernel
def read_number(text: Text, at: int) -> tuple[float, int, bool]:
    """(value, where it ends, is it a decimal number that float32 holds)."""
    negative = False
    if at < text.size and (text[at] == MINUS or text[at] == PLUS):
        negative = text[at] == MINUS
        at += 1
    value, power, digits, seen_point = np.uint64(0), 0, 0, False
    while at < text.size:
        digit = np.uint64(text[at]) - np.uint64(ZERO)
        if digit <= np.uint64(9):
            digits += 1
            if value < _TENTHS:
                value = value * _TEN + digit
                power -= seen_point
            else:
                power += not seen_point
        elif text[at] == POINT and not seen_point:
            seen_point = True
        else:
            break
        at += 1
    ok = digits > 0
    if ok and at < text.size and (text[at] == 101 or text[at] == 69):  # e, E
        exponent, at, ok = read_integer(text, at + 1)
        power += min(max(exponent, -1000), 1000)
    ok = ok and (at == text.size or text[at] <= BLANK)
    number = np.float64(value)
    if value <= _EXACT_DIGITS and -_EXACT_POWER <= power <= _EXACT_POWER:
        number = number * _POWERS[power] if power >= 0 else number / _POWERS[-power]
    elif value > np.uint64(0):
        # In two steps, so that 0.1e-310 does not become 0 times infinity.
        half = power // 2
        number = number * 10.0**half * 10.0 ** (power - half)
    return (-number if negative else number), at, ok and number < NUMBER_END


def plain_integer(text: bytes) -> int | None:
    """The value that `read_integer` reads; None for no integer.

    >>> plain_integer(b"-7"), plain_integer(b"18446744073709551615"), plain_integer(b"1_0")
    (-7, -1, None)
    """
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    if not -(1 << 63) <= value <= ID_MAX:
        return None
    return value - (1 << 64) if value >= 1 << 63 else value


def plain_number(text: bytes) -> float | None:
    """The value that `read_number` reads; None for no number.

    >>> plain_number(b".5e1"), plain_number(b"nan"), plain_number(b"1e999")
    (5.0, None, None)
    """
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if abs(value) < NUMBER_END else None
