"""Whatever stands in a file: a Recipe, or an error with exit code 2. Never a traceback."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.errors import UsageError
from paddock.rec.config.dry_run import rows, text
from paddock.rec.config.folder import ResolveContext
from paddock.rec.config.resolve import resolve
from rec.config.test_golden import BACKEND, FLAT, GOLDEN

TEXTS = [path.read_text("utf-8") for path in sorted(GOLDEN.glob("*.yaml"))]
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["", "{workspace}", "${HOME}", "a/b", "paddlerec::x", "paddlerec.models.x",
                     "../..", "afs:/x", "1e999", "-1", ":", "sync"]),
    st.lists(st.integers() | st.text(max_size=3), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)  # fmt: skip

OPTIONS = st.sampled_from(
    ["epochs=1", "runner=1", "mode=a", "a.b.c=2", "train.reader=x", "runner.x.y=[", "phase={}"]
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for name, inner in items:
        found += _paths(inner, (*path, name))
    return found


@st.composite
def mutated(draw: st.DrawFn, texts: list[str]) -> str:
    """A real file with some values replaced, keys removed, or lines cut."""
    document = yaml.safe_load(draw(st.sampled_from(texts)))
    for _ in range(draw(st.integers(1, 4))):
        paths = _paths(document)
        if not paths:
            break
        *path, last = draw(st.sampled_from(paths))
        inner = document
        for name in path:
            inner = inner[name]
        if draw(st.booleans()) and isinstance(inner, dict):
            del inner[last]
        else:
            inner[last] = draw(ODD)
    found = yaml.safe_dump(document, allow_unicode=True)
    return found[: draw(st.integers(0, len(found)))] if draw(st.integers(0, 5)) == 0 else found


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    mutated(TEXTS), mutated([BACKEND, FLAT]), st.lists(OPTIONS, max_size=2), st.booleans(),
)  # fmt: skip
def test_no_file_makes_a_traceback(
    config: str, backend: str, options: list[str], judges: bool
) -> None:
    """Everything a user can write is one of his errors."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.yaml").write_text(config, "utf-8", "surrogatepass")
        Path(folder, "backend.yaml").write_text(backend, "utf-8", "surrogatepass")
        Path(folder, "model.py").write_text("class Model: pass\n")
        words = ["-m", "config.yaml", "-b", "backend.yaml", *(["--evaluate"] if judges else [])]
        words += [word for option in options for word in ("-o", option)]
        try:
            recipe = resolve(words, ResolveContext(folder, {"HOME": folder}))
        except UsageError as error:
            assert error.problems
            assert all(problem.message for problem in error.problems)
            return
        assert rows(recipe)
        assert text(recipe, "")
