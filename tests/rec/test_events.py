"""Curves, with a writer that stands for VisualDL's."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from paddock.errors import UsageError
from paddock.rec.report import open_events


def test_numbers_go_to_the_writer_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By position: the three writers call the value by different names."""
    told: list[Any] = []

    class Writer:
        def __init__(self, logdir: str) -> None:
            told.append(logdir)

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            told.append((tag, value, step))

    module = ModuleType("visualdl")
    module.__spec__ = ModuleSpec("visualdl", None)
    module.LogWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "visualdl", module)
    open_events("curves")("train/loss", 0.5, 3)
    assert told == ["curves", ("train/loss", 0.5, 3)]


def test_no_writer_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the packages, and the field that turns curves off."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="curves are wanted in 'curves'"):
        open_events("curves")
