"""Where -m, a workspace and the names of old packages lead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from paddock.errors import UsageError
from paddock.rec.config.document import MAX_BYTES
from paddock.rec.config.keys import nearest

MODELS = Path(__file__).resolve().parent.parent / "models"
PREFIXES = ("paddlerec.models.", "paddock.rec.models.", "paddock.models.", "fleetrec.models.")
INSIDE = "paddlerec::"  # what follows is below the package
CONFIG = "config.yaml"


@dataclass(frozen=True)
class ResolveContext:
    """What files and names are looked up in. models: the directory of bundled models."""

    cwd: str
    env: Mapping[str, str]
    models: Path = MODELS

    def bundled_names(self) -> list[str]:
        """Dotted names of all bundled models, sorted."""
        found = (p.parent.relative_to(self.models) for p in self.models.rglob(CONFIG))
        return sorted(f"paddlerec.models.{'.'.join(path.parts)}" for path in found)

    def bundled(self, name: str) -> Path | None:
        """The directory of a bundled model by its dotted name."""
        for prefix in PREFIXES:
            if name.startswith(prefix):
                path = self.models.joinpath(*name.removeprefix(prefix).split("."))
                return path if (path / CONFIG).is_file() else None
        return None

    def is_bundled(self, directory: str) -> bool:
        """Whether a directory is a bundled model's."""
        return Path(directory).resolve().is_relative_to(self.models.resolve())

    def path(self, text: str) -> str:
        """An absolute path of what is written relative to where the command is given."""
        return os.path.normpath(os.path.join(self.cwd, os.path.expanduser(text)))


def find_config(word: str, world: ResolveContext) -> str:
    """The config.yaml that -m means. Raises UsageError: there is none."""
    path = world.path(word)
    if os.path.isfile(path):
        return path
    if os.path.isdir(path):
        inner = os.path.join(path, CONFIG)
        if os.path.isfile(inner):
            return inner
        found = sorted(name for name in os.listdir(path) if name.endswith((".yaml", ".yml")))
        hint = f"name one: {', '.join(found[:5])}" if found else "a config.yaml is needed"
        raise UsageError(f"-m {word}: there is no config.yaml in that directory", hint=hint)
    if (bundled := world.bundled(word)) is not None:
        return str(bundled / CONFIG)
    # By their last words: all names begin alike. A model's own name is enough to be told it.
    names = {name.rpartition(".")[2]: name for name in world.bundled_names()}
    close = get_close_matches(word.rpartition(".")[2], names, n=1)
    hint = f"did you mean '{names[close[0]]}'?" if close else ""
    there = f"bundled are {', '.join(names.values())}"
    if word.startswith((*PREFIXES, "paddlerec.", "paddock.")):
        raise UsageError(f"-m {word}: there is no such bundled model", hint=hint or there)
    if word.endswith((".yaml", ".yml")) or os.sep in word:
        parent = os.path.dirname(path)
        others = sorted(os.listdir(parent)) if os.path.isdir(parent) else []
        hint = nearest(os.path.basename(word), others, f"nothing like it is in {parent}")
        raise UsageError(f"-m {word}: there is no such file", hint=hint)
    hint = hint or f"a config.yaml or its directory; {there}"
    raise UsageError(f"-m {word}: neither a file nor a bundled model", hint=hint)


def read_text(path: str, shown: str) -> str:
    """The text of a file. Raises UsageError."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {shown}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        what = f"{shown} is not text: byte {error.start} is not UTF-8"
        raise UsageError(what, hint="save the file as UTF-8") from error


def find_workspace(text: str, config: str, world: ResolveContext) -> str | None:
    """The directory that `workspace:` means; None where there is none such.

    A bundled model's, or a directory: relative to the file, else to where the command is given,
    or the end of the file's own directory (`models/rank/dnn`, in a clone of PaddleRec).
    """
    bundled = world.bundled(text)
    if bundled is not None:
        return str(bundled)
    own = os.path.dirname(config)
    for prefix in PREFIXES:
        if text.startswith(prefix):  # a model of a clone, which is not bundled
            text = os.path.join("models", *text.removeprefix(prefix).split("."))
    text = os.path.normpath(os.path.expanduser(text))
    for candidate in (os.path.join(own, text), os.path.join(world.cwd, text)):
        if os.path.isdir(candidate):
            return os.path.normpath(candidate)
    return own if f"{own}/".endswith(f"/{text}/") else None
