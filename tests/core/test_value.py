"""@value against a frozen dataclass: the type checker is told that they are the same."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from paddock.core.value import fields_of, replace, value


@value
class Light:
    """Made by @value."""

    x: int
    y: str = "a"
    z: tuple[int, ...] = ()

    @property
    def double(self) -> int:
        """Twice x."""
        return 2 * self.x


@dataclasses.dataclass(frozen=True)
class Heavy:
    """The same, made by dataclasses."""

    x: int
    y: str = "a"
    z: tuple[int, ...] = ()

    @property
    def double(self) -> int:
        """Twice x."""
        return 2 * self.x


@value
class Other:
    """Has the same fields and is something else."""

    x: int
    y: str = "a"
    z: tuple[int, ...] = ()


ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, "b"), {}),
    ((1, "b", (2, 3)), {}),
    ((), {"x": 1}),
    ((1,), {"z": (4,)}),
    ((), {"z": (), "y": "", "x": 0}),
]
WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((), {"y": "b"}),
    ((1, "b", (), 4), {}),
    ((1,), {"x": 2}),
    ((1,), {"w": 2}),
]


@pytest.mark.parametrize(("args", "kwargs"), ARGUMENTS)
def test_a_value_behaves_like_a_frozen_dataclass(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Same fields, same text, same hash, same methods."""
    light, heavy = Light(*args, **kwargs), Heavy(*args, **kwargs)
    assert dict(fields_of(light)) == dataclasses.asdict(heavy)
    assert repr(light) == repr(heavy).replace("Heavy", "Light")
    assert hash(light) == hash(heavy)
    assert light.double == heavy.double
    assert light == Light(*args, **kwargs)
    assert light != Light(99)


@pytest.mark.parametrize(("args", "kwargs"), WRONG)
def test_wrong_arguments_are_refused_as_by_a_dataclass(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """A misspelt field must not pass in silence."""
    for cls in (Light, Heavy):
        with pytest.raises(TypeError):
            cls(*args, **kwargs)


def test_a_missing_field_is_named() -> None:
    """The message says what to add."""
    with pytest.raises(TypeError, match="Light needs x"):
        Light()  # type: ignore[call-arg]


def test_a_value_cannot_be_changed() -> None:
    """Frozen as a dataclass is: AttributeError for old, new and deleted fields."""
    for made in (Light(1), Heavy(1)):
        for change in (
            lambda m=made: setattr(m, "x", 2),
            lambda m=made: setattr(m, "new", 2),
            lambda m=made: delattr(m, "x"),
        ):
            with pytest.raises(AttributeError):
                change()
        assert made.x == 1


def test_values_of_different_classes_differ() -> None:
    """Two messages with equal fields are two messages."""
    assert Light(1) != Other(1)
    assert Light(1) != (1, "a", ())


def test_replace_gives_a_changed_copy() -> None:
    """And refuses what is no field, as dataclasses.replace does."""
    before = Light(1)
    assert replace(before, y="b") == Light(1, "b")
    assert before == Light(1)
    with pytest.raises(TypeError):
        replace(before, w=1)


def test_a_field_may_be_hidden_by_no_method() -> None:
    """A repr of one's own is kept (secrets must not be shown)."""

    @value
    class Secret:
        word: str

        def __repr__(self) -> str:
            return "Secret(...)"

    assert repr(Secret("x")) == "Secret(...)"


def test_a_mutable_field_makes_it_unhashable() -> None:
    """As with a frozen dataclass: equal, and no key of a dict."""

    @value
    class Holder:
        items: dict[str, int]

    assert Holder({"a": 1}) == Holder({"a": 1})
    with pytest.raises(TypeError):
        hash(Holder({}))


def test_values_can_be_matched_copied_and_pickled() -> None:
    """What Python does with a dataclass works here, too."""
    match Light(3, "b"):
        case Light(x, y):
            assert (x, y) == (3, "b")
    made = Light(1, z=(1, 2))
    assert copy.copy(made) == made == copy.deepcopy(made)
    assert pickle.loads(pickle.dumps(made)) == made
