"""Data that is not there: told before anything starts, where it must be here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from paddock.data.files import GENERATED
from paddock.errors import Problem
from paddock.rec.config.keys import nearest
from paddock.rec.config.unused import key_of
from paddock.rec.settings import Contract, Run, Task


def is_elsewhere(path: str) -> bool:
    """Whether data is no file of a file system: an fsspec URL, or made when it is read.

    >>> is_elsewhere("s3://b/x"), is_elsewhere("generated:criteo?seed=1"), is_elsewhere("data")
    (True, True, False)
    """
    return "://" in path or path.startswith(GENERATED)


def missing_data(runs: Sequence[Run], form: str) -> Iterator[Problem]:
    """A problem for each path that does not exist, or is a directory without files."""
    for run in runs:
        is_training = run.task is Task.TRAIN
        side, reading = ("reading", run.reading) if is_training else ("test", run.test)
        key = key_of(form, f"{side}.data")
        for path in reading.paths if reading is not None else ():
            if is_elsewhere(path) or any(c in path for c in "*?["):
                continue
            if not os.path.exists(path):
                parent = os.path.dirname(path)
                names = os.listdir(parent) if os.path.isdir(parent) else []
                hint = nearest(os.path.basename(path), names, "write a directory")
                if run.contract is Contract.BUNDLED:
                    hint = f"paddock data generate makes some; or -o {key}=DIR"
                yield Problem(f"{key}: {path} does not exist", hint)
            elif os.path.isdir(path) and not os.listdir(path):
                what = f"{key}: {path} is an empty directory"
                yield Problem(what, "put files there, or name another")
