"""--sweep -> points: ranges, names, arguments, and all mistakes at once."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.backends.sweeps.grid import (
    PLACE,
    POINTS_MAX,
    RUN_NAME_MAX,
    check_places,
    points_of,
    read_grid,
    script_args,
)
from paddock.errors import UsageError

NAMES = st.from_regex(r"[a-z_][a-z0-9_.]{0,12}", fullmatch=True).filter(lambda name: name != "slot")
VALUES = st.text(st.sampled_from("abc019.-=/ {}"), min_size=1, max_size=12)
GRIDS = st.dictionaries(
    NAMES, st.lists(VALUES, min_size=1, max_size=4, unique=True), min_size=1, max_size=3
)


def messages(texts: list[str]) -> list[str]:
    """The mistakes of these --sweep."""
    with pytest.raises(UsageError) as caught:
        points_of(read_grid(texts), "train")
    return [problem.message for problem in caught.value.problems]


@given(
    st.decimals(-1000, 1000, places=3), st.integers(1, 60), st.decimals("0.001", 50, places=3),
    st.booleans(),
)  # fmt: skip
def test_a_range_has_its_start_its_steps_and_its_stop(
    start: Decimal, steps: int, step: Decimal, is_down: bool
) -> None:
    """Decimal numbers: 0.1:0.3:0.1 ends with 0.3, and not with 0.30000000000000004."""
    step = -step if is_down else step
    stop = start + steps * step
    (values,) = read_grid([f"x={start}:{stop}:{step}"]).values()
    assert [Decimal(value) for value in values] == [start + at * step for at in range(steps + 1)]


@given(GRIDS)
def test_every_point_has_a_name_of_its_own(grid: dict[str, list[str]]) -> None:
    """Bounded, as Kubernetes takes it; and all combinations of the values are there once."""
    try:
        points = points_of(grid, "train")
    except UsageError as error:
        assert "have the same variable" in str(error)  # a.b and a_b
        return
    names = [point.name for point in points]
    size = 1
    for values in grid.values():
        size *= len(values)
    assert len(set(names)) == len(names) == size
    assert len({tuple(point.values.items()) for point in points}) == size
    for name in names:
        assert len(name) <= RUN_NAME_MAX and set(name) <= set(
            "abcdefghijklmnopqrstuvwxyz0123456789-"
        )


@given(GRIDS, st.lists(st.text(st.sampled_from('ab":1{}=- '), max_size=9), max_size=4))
def test_arguments_without_names_in_braces_stay_as_they_are(
    grid: dict[str, list[str]], words: list[str]
) -> None:
    """A program's own braces, as of JSON, are its own; every value comes once, as it was given."""
    values = {name: found[0] for name, found in grid.items()}
    words = [word for word in words if not PLACE.search(word)]
    args = script_args(words, (), values)
    assert args == [*words, *(f"--{name}={value}" for name, value in values.items())]


def test_a_value_stands_where_its_name_was_written() -> None:
    """Elsewhere it is appended; a name that is used in a flag is not appended either."""
    values = {"lr": "0.1", "np": "2"}
    words = script_args(["--out={lr}/x", "{{np}}"], ["--nproc-per-node", "{np}"], values)
    assert words == ["--out=0.1/x", "{np}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "--sweep lr: not NAME=VALUES"),
        ("1x=3", "--sweep 1x=3: not NAME=VALUES"),
        ("lr=", "lr has no value, or an empty one"),
        ("lr=1,,2", "lr has no value, or an empty one"),
        ("lr=1,2,1", "two points are the same: lr is 1 twice"),
        ("bs=32:64:32,64", "two points are the same: bs is 64 twice"),
        ("bs=32:128", "'32:128' is not a range"),
        ("bs=32:x:32", "'32:x:32' is not a range"),
        ("bs=1:2:3:4", "'1:2:3:4' is not a range"),
        ("bs=1:2:0", "has no end: its step is 0"),
        ("bs=2:1:1", "has no end: no step of 1 leads there"),
        ("bs=1:1e9:1", "has 1000000000 values, the limit is 1000"),
        ("bs=nan:2:1", "'nan:2:1' is not a range"),
        ("bs=1:inf:1", "'1:inf:1' is not a range"),
        ("slot=1,2", "'slot' is not a name"),
        ("lr=" + "x" * 201, "a value of lr is too long"),
        ("lr=a\x1b[2J", "a value of lr is too long or unprintable"),
    ],
)
def test_a_mistake_says_what_is_wrong(text: str, message: str) -> None:
    """The value, the limit and where."""
    (found,) = messages([text])
    assert message in found


def test_all_mistakes_come_at_once() -> None:
    """Also the same name twice, names with one variable, and a grid that is too large."""
    assert len(messages(["lr", "bs=1:2", "a=1", "a=2"])) == 3
    assert messages(["a.b=1", "a_b=1"]) == [
        "sweep: a.b and a_b have the same variable PADDOCK_SWEEP_A_B"
    ]
    assert messages(["a=1:40:1", "b=1:40:1"]) == [
        f"sweep: the grid has 1600 points, the limit is {POINTS_MAX}"
    ]


def test_text_with_colons_is_a_value() -> None:
    """A path or an address is no range; only what begins with a number is meant as one."""
    texts = ["data=s3://a:b/c,http://h:80"]
    with pytest.raises(UsageError, match="is not a range"):
        read_grid(["t=10:30"])
    assert read_grid(texts) == {"data": ("s3://a:b/c", "http://h:80")}


def test_a_text_in_double_quotes_is_one_value() -> None:
    """Commas, times and quotes; a quote that begins no value is its own."""
    texts = ['at="12:30","a,b","say ""hi""","",7:8:1,x"y', 'q="a"b,"c']
    assert read_grid(texts) == {
        "at": ("12:30", "a,b", 'say "hi"', "", "7", "8", 'x"y'), "q": ('"a"b', '"c'),
    }  # fmt: skip
    with pytest.raises(UsageError) as caught:
        read_grid(["t=10:30"])
    assert '"10:30", in double quotes' in caught.value.hint


def test_a_name_that_no_sweep_gives_is_refused() -> None:
    """With the nearest one, and how to write the braces themselves."""
    with pytest.raises(UsageError, match="lrr") as caught:
        check_places(["{lrr}", "{slot}", "{{x}}", "{lr}", "{zzz}"], ["lr"])
    assert [problem.message for problem in caught.value.problems] == [
        "{lrr} is no name of a --sweep", "{zzz} is no name of a --sweep",
    ]  # fmt: skip
    assert "{{zzz}}" in caught.value.problems[1].hint
