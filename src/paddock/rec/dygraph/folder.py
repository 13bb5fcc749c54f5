"""A model's folder: its modules found first, its model and its data sets made as its users do.

The contract, as PaddleRec 2.x has it: DygraphModel in dygraph_model.py; RecDataset(file_list,
config=...) in the module that train_reader_path or infer_reader_path names; the config as flat
dotted keys, with config_abs_dir.
"""

from __future__ import annotations

import glob
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from paddock.errors import UsageError
from paddock.rec.dygraph.paddle_patches import as_in_paddle_2

MODEL = "dygraph_model"
# infer_forward is asked for where a model is evaluated: some have none.
HOOKS = ("create_model", "create_optimizer", "create_metrics", "train_forward")
# Packages whose name is not that of their module.
PACKAGES = {
    "cv2": "opencv-python", "sklearn": "scikit-learn", "yaml": "PyYAML", "PIL": "pillow",
    "skimage": "scikit-image", "faiss": "faiss-cpu",
}  # fmt: skip


class DygraphFolder:
    """An opened folder. config: flat and dotted; model: the user's DygraphModel."""

    def __init__(self, directory: str, config: Mapping[str, object]) -> None:
        self.directory = os.path.abspath(directory)
        self.config: dict[str, Any] = {**config, "config_abs_dir": self.directory}
        if not Path(self.directory, f"{MODEL}.py").is_file():
            raise UsageError(
                f"{directory!r} has no {MODEL}.py", hint="the folder of a PaddleRec 2.x model"
            )
        self._put_first()
        made = self._named(MODEL, "DygraphModel")
        with user_code(self.directory):
            self.model: Any = made()
        lacks = [hook for hook in HOOKS if not callable(getattr(self.model, hook, None))]
        if lacks:
            raise UsageError(
                f"{self.directory}/{MODEL}.py: DygraphModel has no {', '.join(lacks)}",
                hint="its hooks are " + ", ".join(HOOKS),
            )

    def dataset(self, reader: str, files: Sequence[str]) -> Any:
        """The user's RecDataset over these files. reader: a module's name, or its path."""
        name = Path(reader).name.removesuffix(".py")
        made = self._named(name, "RecDataset")
        with user_code(self.directory):
            return made(list(files), config=self.config)

    def _put_first(self) -> None:
        """The folder leads sys.path; modules of another model's folder are not taken for its own.

        Every folder has a net.py, and a process may run several.
        """
        if self.directory in sys.path:
            sys.path.remove(self.directory)
        sys.path.insert(0, self.directory)
        for name, module in list(sys.modules.items()):
            home = os.path.dirname(getattr(module, "__file__", None) or "")
            if home not in ("", self.directory) and Path(home, f"{MODEL}.py").is_file():
                del sys.modules[name]
        importlib.invalidate_caches()

    def _named(self, module: str, name: str) -> Any:
        with user_code(self.directory):
            found: ModuleType = importlib.import_module(module)
        if not hasattr(found, name):
            raise UsageError(f"{found.__file__} has no class {name}", hint="write it there")
        return getattr(found, name)


@contextmanager
def user_code(directory: str) -> Iterator[None]:
    """Runs a user's code as in Paddle 2; a package that is not installed is one line."""
    with as_in_paddle_2():
        try:
            yield
        except ModuleNotFoundError as error:
            frames = traceback.extract_tb(error.__traceback__)
            mine = [frame for frame in frames if frame.filename.startswith(directory)]
            where = f"{mine[-1].filename}:{mine[-1].lineno}" if mine else directory
            missing = (error.name or "").split(".")[0]
            if missing != error.name and importlib.util.find_spec(missing) is not None:
                raise _outdated(error, where, mine) from error
            raise UsageError(
                f"{where} imports {error.name}, which is not here",
                hint=f"pip install {PACKAGES.get(missing, missing)}",
            ) from error


def _outdated(
    error: ModuleNotFoundError, where: str, mine: Sequence[traceback.FrameSummary]
) -> UsageError:
    """A package is here, and has no longer, or not yet, what a line or a pickle takes of it."""
    package = (error.name or "").split(".")[0]
    what = f"{where} needs {error.name}, which the {package} that is installed does not have"
    if not any("pickle" in (frame.line or "") for frame in mine[-1:]):
        return UsageError(what, hint=f"install the {package} that it was written for, or change it")
    # pandas/compat/pickle_compat.py, of every pandas: old names and what they are called today.
    reads = "read it with pandas.read_pickle, which knows older ones; or " * (package == "pandas")
    hint = f"the pickle is of another {package}: {reads}write it anew with the one that is here"
    return UsageError(what, hint=hint)


def list_files(directory: str, paths: Sequence[str]) -> list[str]:
    """The files of these paths, each directory's in order of name. Raises UsageError.

    Relative paths are the folder's. Hidden entries are left out.
    """
    found: list[str] = []
    for path in paths:
        whole = os.path.join(directory, path)
        if os.path.isdir(whole):
            entries = sorted(name for name in os.listdir(whole) if not name.startswith("."))
            found += [os.path.join(whole, name) for name in entries]
        else:
            found += [whole] if os.path.isfile(whole) else sorted(glob.glob(whole))
    if not found:
        raise UsageError(
            f"no files in {', '.join(map(repr, paths))} (from {directory})",
            hint="runner.train_data_dir and runner.test_data_dir name directories",
        )
    return found
