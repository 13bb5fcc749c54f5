"""YAML as a tree that knows its lines, and what -o changes."""

from __future__ import annotations

import pytest

from paddock.errors import UsageError
from paddock.rec.config.document import flatten, parse, set_value


def test_each_key_knows_its_file_and_line() -> None:
    """Also below lists, where 1.8.5 keeps everything."""
    document = parse("mode: a\nrunner:\n- name: a\n  epochs: 3\n", "c.yaml")
    assert document.source(("runner", "0", "epochs")) == "c.yaml:4"
    assert document.source(("runner", "0", "device")) == "c.yaml:3"  # the nearest above


def test_a_key_that_stands_twice_is_told_with_both_lines() -> None:
    """YAML readers silently take the last one."""
    (problem,) = parse("runner:\n  epochs: 1\n  epochs: 2\n", "c.yaml").problems
    assert problem.message == "c.yaml:3: runner.epochs stands twice (see c.yaml:2)"


def test_a_number_without_a_point_is_a_number() -> None:
    """PaddleRec's own files say 5e-6, which YAML 1.1 takes for a text."""
    assert parse("a: 5e-6", "c").tree == {"a": 5e-6}


@pytest.mark.parametrize("text", ["", "- a", "a: [", "a: !!python/name:os.system x", "a: &x [*x",
                                  "? [a]\n: b\n- c", "a: 2020-99-99", "\0"])  # fmt: skip
def test_what_is_no_table_of_keys_is_one_clear_error(text: str) -> None:
    """Never a traceback."""
    with pytest.raises(UsageError, match=r"c\.yaml"):
        parse(text, "c.yaml")


def test_references_that_multiply_are_limited() -> None:
    """A few lines of anchors could fill the memory."""
    text = "a0: &a0 [x, x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
    )
    with pytest.raises(UsageError, match="more than"):
        parse(text, "c.yaml")


def test_a_key_of_an_unknown_entry_changes_all_entries() -> None:
    """-o runner.epochs=1 needs no runner's name."""
    document = parse("runner: [{name: a}, {name: b}]", "c.yaml")
    set_value(document, "runner.epochs", "1")
    assert [each["epochs"] for each in document.tree["runner"]] == [1, 1]
    assert document.source(("runner", "1", "epochs")) == "-o runner.epochs"


def test_lists_are_flattened_by_the_names_of_their_entries() -> None:
    """As PaddleRec's models ask: runner.a.epochs."""
    tree = parse("runner: [{name: a, epochs: 2}]\nmode: a", "c.yaml").tree
    assert flatten(tree) == {"runner.a.name": "a", "runner.a.epochs": 2, "mode": "a"}
