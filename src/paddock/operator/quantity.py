"""Quantities of Kubernetes: read, added, compared exactly, and written in canonical form. Pure.

Whoever writes an object through Go types rewrites its quantities: 1000m becomes 1. So quantities
are compared as amounts, never as text.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/;
apimachinery, pkg/api/resource/quantity.go, CanonicalizeBytes, and suffix.go.
"""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Literal

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
Form = Literal["decimal", "binary", "exponent"]  # 500M, 500Mi, 5e8: a sum has that of its first
DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")  # powers of 1000, from -3
BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def read_quantity(text: str) -> Fraction:
    """The amount. Raises ValueError for what is not a quantity.

    >>> read_quantity("500m") * 2, read_quantity("1.5Gi") == 3 * 2**29, read_quantity("1e3")
    (Fraction(1, 1), True, Fraction(1000, 1))
    """
    text = text.strip()
    number = text.rstrip("numkKMGTPEi")
    suffix = text[len(number) :]
    is_number = number == number.strip() and not set("/_") & set(number)
    is_huge = len(text) > TEXT_MAX or len(number.lower().partition("e")[2]) > 3
    if suffix not in SUFFIXES or not is_number or is_huge:
        raise ValueError(f"'{text[:TEXT_MAX]}' is not a quantity")
    return Fraction(number) * SUFFIXES[suffix]


def form_of(text: str) -> Form:
    """How a quantity is written, and with it the sums that it begins.

    >>> form_of("500m"), form_of("1Gi"), form_of("1e3"), form_of("2E")
    ('decimal', 'binary', 'exponent', 'decimal')
    """
    number = text.strip().rstrip("numkKMGTPEi")
    if text.strip().endswith("i"):
        return "binary"
    return "exponent" if "e" in number.lower() else "decimal"


def write_quantity(amount: Fraction, form: Form) -> str:
    """The canonical text, as Kubernetes writes it; less than a billionth is rounded up.

    >>> [write_quantity(read_quantity(t), form_of(t)) for t in ("2000m", "1024Mi", "1.5Gi", "2e8")]
    ['2', '1Gi', '1536Mi', '200e6']
    >>> write_quantity(Fraction(200_000_000), "decimal"), write_quantity(Fraction(1, 2), "binary")
    ('200M', '500m')
    """
    if form == "binary" and amount.denominator == 1 and amount >= 1024:
        number, power = amount.numerator, 0
        while number % 1024 == 0 and power < len(BINARY) - 1:
            number, power = number // 1024, power + 1
        return f"{number}{BINARY[power]}"
    number, power = ceil(amount * 10**9), -9
    while number and number % 1000 == 0 and power < 18:
        number, power = number // 1000, power + 3
    if not number:
        return "0"
    if form == "exponent":
        return f"{number}e{power}" if power else f"{number}"
    return f"{number}{DECIMAL[power // 3 + 3]}"


def canonical_quantities(amounts: Mapping[str, object]) -> dict[str, object]:
    """The same amounts in canonical form; what is not a quantity stays as it is.

    >>> canonical_quantities({"cpu": 4, "memory": "1024Mi", "gpu": "many"})
    {'cpu': '4', 'memory': '1Gi', 'gpu': 'many'}
    """
    return {**amounts, **add_quantities({}, amounts)}


def is_same_amounts(first: Mapping[str, object], second: Mapping[str, object]) -> bool:
    """True when both name the same resources and as much of each.

    >>> is_same_amounts({"cpu": "1000m"}, {"cpu": 1}), is_same_amounts({"cpu": "1"}, {})
    (True, False)
    """

    def amounts(given: Mapping[str, object]) -> dict[str, object]:
        return {**given, **{name: amount for name, (amount, _) in _read(given).items()}}

    return amounts(first) == amounts(second)


def add_quantities(
    first: Mapping[str, object], second: Mapping[str, object], *, times: int = 1
) -> dict[str, str]:
    """first + times * second, by name; what is not a quantity is left out.

    >>> add_quantities({"cpu": "1"}, {"cpu": "500m", "memory": "1Gi"}, times=2)
    {'cpu': '2', 'memory': '2Gi'}
    """
    total = _read(first)
    for name, (more, form) in _read(second).items():
        amount, before = total.get(name, (Fraction(0), form))
        total[name] = amount + more * times, before if amount else form
    return {name: write_quantity(*found) for name, found in total.items()}


def max_quantities(first: Mapping[str, object], second: Mapping[str, object]) -> dict[str, str]:
    """The larger of both, by name.

    >>> max_quantities({"cpu": "1"}, {"cpu": "500m", "memory": "1Gi"})
    {'cpu': '1', 'memory': '1Gi'}
    """
    total = _read(first)
    for name, found in _read(second).items():
        total[name] = max(total.get(name, found), found, key=lambda pair: pair[0])
    return {name: write_quantity(*found) for name, found in total.items()}


def _read(amounts: Mapping[str, object]) -> dict[str, tuple[Fraction, Form]]:
    found: dict[str, tuple[Fraction, Form]] = {}
    for name, given in amounts.items():
        # What is not a quantity the API server will refuse in the pod, and say so.
        with suppress(ValueError, ZeroDivisionError):
            found[name] = read_quantity(str(given)), form_of(str(given))
    return found
