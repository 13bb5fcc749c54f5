"""Quantities of Kubernetes, added and compared exactly. Pure.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SUFFIXES = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
TEXT_MAX = 64


def read_quantity(text: str) -> Fraction:
    """The amount. Raises ValueError for what is not a quantity.

    >>> read_quantity("500m") * 2, read_quantity("1.5Gi") == 3 * 2**29, read_quantity("1e3")
    (Fraction(1, 1), True, Fraction(1000, 1))
    """
    text = text.strip()
    number = text.rstrip("numkKMGTPEi")
    suffix = text[len(number) :]
    if len(text) > TEXT_MAX or suffix not in SUFFIXES:
        raise ValueError(f"'{text[:TEXT_MAX]}' is not a quantity")
    if (
        number != number.strip()
        or "/" in number
        or "_" in number
        or len(number.lower().partition("e")[2]) > 3
    ):
        raise ValueError(f"'{text}' is not a quantity")
    return Fraction(number) * SUFFIXES[suffix]


def write_quantity(amount: Fraction) -> str:
    """The shortest exact text: whole numbers, binary suffixes, thousandths.

    >>> [write_quantity(read_quantity(t)) for t in ("2000m", "1024Mi", "100m", "1500")]
    ['2', '1Gi', '100m', '1500']
    """
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        part = amount / SUFFIXES[suffix]
        if part.denominator == 1 and part >= 1:
            return f"{part.numerator}{suffix}"
    for suffix in ("", "m", "u"):
        part = amount / SUFFIXES[suffix]
        if part.denominator == 1:
            return f"{part.numerator}{suffix}"
    return f"{-(-amount // SUFFIXES['n'])}n"  # rounded up, as Kubernetes does


def add_quantities(
    first: Mapping[str, str], second: Mapping[str, str], *, times: int = 1
) -> dict[str, str]:
    """first + times * second, by name; what is not a quantity is left out.

    >>> add_quantities({"cpu": "1"}, {"cpu": "500m", "memory": "1Gi"}, times=2)
    {'cpu': '2', 'memory': '2Gi'}
    """
    total = _read(first)
    for name, amount in _read(second).items():
        total[name] = total.get(name, Fraction(0)) + amount * times
    return {name: write_quantity(amount) for name, amount in total.items()}


def max_quantities(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    """The larger of both, by name.

    >>> max_quantities({"cpu": "1"}, {"cpu": "500m", "memory": "1Gi"})
    {'cpu': '1', 'memory': '1Gi'}
    """
    total = _read(first)
    for name, amount in _read(second).items():
        total[name] = max(total.get(name, amount), amount)
    return {name: write_quantity(amount) for name, amount in total.items()}


def _read(amounts: Mapping[str, str]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for name, text in amounts.items():
        try:
            found[name] = read_quantity(text)
        except (ValueError, ZeroDivisionError):
            continue  # the API server will refuse the pod and say so
    return found
