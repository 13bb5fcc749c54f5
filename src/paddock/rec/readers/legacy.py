"""Users' reader.py of PaddleRec 0.1 to 2.x: a class with `generate_sample(line)`, as it is.

Where the class has `generate_batch_from_trainfiles(files)`, it reads whole files by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

from paddock.data.chunks import Chunk
from paddock.data.files import blocks
from paddock.data.formats.format import Parsed, read_lines
from paddock.data.formats.samples import Sample, Slots, columns_of
from paddock.errors import UsageError
from paddock.rec.readers.shims import accepts, calls_hash, load_file, read_source, reader_packages

CLASSES = ("TrainReader", "Reader", "EvaluateReader")
SAMPLES_AT_ONCE = 4096
MODULE = "paddock_users_reader"


@dataclass(frozen=True)
class LegacyFormat:
    """The lines, or files, of a user's reader.

    path: the .py. class_name: None for the first of CLASSES that it has. names: the slots in
    order, for samples without names. config: (dotted key, value) of config.yaml, and its path.
    """

    path: str
    class_name: str | None = None
    slots: Slots = field(default_factory=Slots)
    names: tuple[str, ...] = ()
    config: tuple[tuple[str, Any], ...] = field(default=(), hash=False)  # May hold lists.
    config_path: str = ""

    def __post_init__(self) -> None:
        if not os.path.isfile(self.path):
            raise UsageError(f"reader '{self.path}' does not exist", hint="data_converter, class")

    @property
    def uses_hash(self) -> bool:
        """Whether its ids are the same only where PYTHONHASHSEED is."""
        try:
            return calls_hash(read_source(self.path))
        except SyntaxError:
            return False  # Loading it says so.

    def read(self, chunk: Chunk) -> Iterator[Parsed]:
        """The examples of the chunk."""
        reader = _load(self)
        if hasattr(reader, "generate_batch_from_trainfiles"):
            # It reads all of a file; whoever has the file's begin does it.
            if chunk.start == 0:
                yield from self._read_file(reader, chunk.path)
            return
        for block in blocks(chunk):
            yield self._parse(reader, block)

    def _parse(self, reader: Any, block: bytes) -> Parsed:
        def samples(line: bytes) -> list[Sample] | str:
            try:
                made = reader.generate_sample(line.decode("utf-8", "replace"))
                found = made() if callable(made) else made
                return [self._named(sample) for sample in found or () if sample is not None]
            except Exception as error:  # noqa: BLE001  # The user's code; the line is named.
                said = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
                return f"{type(reader).__name__}.generate_sample: {said}"

        lines = read_lines(block, samples)
        batch = columns_of([one for some in lines.found for one in some], self.slots)
        return Parsed(batch, lines.count, lines.bad, lines.bad_count)

    def _read_file(self, reader: Any, path: str) -> Iterator[Parsed]:
        made = reader.generate_batch_from_trainfiles([path])
        found = made() if callable(made) else made
        samples = (self._named(sample) for batch in found for sample in batch)
        while some := list(islice(samples, SAMPLES_AT_ONCE)):
            yield Parsed(columns_of(some, self.slots), len(some))

    def _named(self, sample: Any) -> Sample:
        fields = list(sample.items() if isinstance(sample, dict) else sample)
        if all(map(_is_named, fields)):
            return fields
        names = self.names or tuple(str(i) for i in range(len(fields)))
        if len(names) != len(fields):
            raise UsageError(
                f"a sample of '{self.path}' has {len(fields)} slots, {len(names)} are declared",
                hint="sparse_slots, dense_slots",
            )
        return list(zip(names, fields, strict=True))


def _is_named(field: Any) -> bool:
    return isinstance(field, (list, tuple)) and len(field) == 2 and isinstance(field[0], str)


@lru_cache(8)
def _load(form: LegacyFormat) -> Any:
    """The reader, set up; one for this process."""
    config = dict(form.config)
    try:
        with reader_packages(form.path, config):
            kind = _class(form, load_file(form.path, MODULE))
            reader = kind(form.config_path) if accepts(kind, 1) else kind()
            if hasattr(reader, "init"):
                _ = reader.init(config) if accepts(reader.init, 1) else reader.init()
    except SyntaxError as error:
        raise UsageError(
            f"{form.path}:{error.lineno}: {error.msg}", hint="is it Python 2? 2to3 rewrites it"
        ) from error
    except ImportError as error:
        raise UsageError(
            f"reader '{form.path}' imports what is not here: {error}", hint="pip install it"
        ) from error
    return reader


def _class(form: LegacyFormat, module: Any) -> Any:
    for name in (form.class_name,) if form.class_name else CLASSES:
        if isinstance(getattr(module, name, None), type):
            return getattr(module, name)
    wanted = form.class_name or " or ".join(CLASSES)
    raise UsageError(f"'{form.path}' has no class {wanted}", hint="reader_class_name names it")
