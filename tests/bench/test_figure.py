"""What the table of the benchmarks says: a figure met or missed, and the ratio to ours."""

from __future__ import annotations

import pytest
from benchmarks.figure import Figure, interleave, table


def figure_of(samples: dict[str, list[float]], **wanted: object) -> Figure:
    """A figure with these samples."""
    figure = Figure("start", "s", **wanted)  # type: ignore[arg-type]  # as the caller wrote it
    figure.samples = samples
    return figure


@pytest.mark.parametrize(
    ("wanted", "is_met"),
    [
        ({"wanted": 0.2}, True),
        ({"wanted": 0.1}, False),
        ({"wanted": 0.1, "over": "bare"}, True),
        ({"wanted_ratio": ("mpirun", 1.25)}, True),
        ({"wanted_ratio": ("mpirun", 0.5)}, False),
        ({"wanted_ratio": ("torchrun", 0.5)}, None),
        ({"wanted": 0.2, "is_worst": True}, False),
        ({}, None),
    ],
)
def test_a_figure_knows_whether_it_is_met(wanted: dict[str, object], is_met: bool | None) -> None:
    """The exit code of the benchmarks hangs on it; None where there is nothing to compare."""
    samples = {"paddock": [0.1, 0.15, 0.9], "mpirun": [0.2], "bare": [0.1]}
    assert figure_of(samples, **wanted).is_met is is_met


def test_a_launcher_that_is_missing_leaves_an_empty_cell() -> None:
    """Not everybody has every peer installed; the others are still measured."""
    text = table([figure_of({"paddock": [0.1], "mpirun": [0.2]})], ["paddock", "mpirun"])
    assert text.splitlines()[2].replace(" ", "") == "|start|0.100s|0.200s(2.00x)|-|||"


def test_launchers_take_turns() -> None:
    """A busy minute of the machine must not fall on one launcher only."""
    order: list[str] = []
    figure = Figure("start", "s")
    interleave([figure], {"paddock": 3, "torchrun": 1}, order.append, lambda: 0.5)
    assert order == ["paddock", "torchrun", "paddock", "paddock"]
    assert figure.loads == [0.5, 0.5, 0.5]
