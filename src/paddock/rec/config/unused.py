"""Keys that nothing reads: neither Paddock nor the Python of the model's folder. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from paddock.rec.config import v01, v2, v18
from paddock.rec.config.document import Document, Path
from paddock.rec.config.keys import Key, Reader, nearest
from paddock.rec.config.ours import OURS

Table = tuple[Path, Sequence[Key]]
TABLES: dict[str, tuple[Table, ...]] = {
    "v01": ((("train",), v01.TRAIN), (("evaluate",), v01.EVALUATE)),
    "v18": (
        ((), v18.TOP), (("runner",), v18.RUNNER), (("phase",), v18.PHASE),
        (("dataset",), v18.DATASET),
    ),
    "v2": ((("runner",), v2.RUNNER), ((), v2.TOP)),
}  # fmt: skip
# Where short words of -o go, and keys of ours stand.
PREFIX = {"v01": "train", "v18": "runner", "v2": "runner"}
OPTIMIZER = ("optimizer", "learning_rate", "reg")  # of hyper_parameters: read by learners
HYPER: dict[str, Path] = {
    "v01": ("train", "model", "hyper_parameters"),
    "v18": ("hyper_parameters",),
    "v2": ("hyper_parameters",),
}


def key_of(form: str, name: str) -> str:
    """The key that a field is read from: what to write.

    >>> key_of("v2", "reading.data"), key_of("v18", "test.batch_size")
    ('runner.train_data_dir', 'dataset.batch_size')
    """
    for section, table in TABLES[form]:
        for key in table:
            field = key.field
            if section == ("dataset",):
                field = f"{name.partition('.')[0]}.{field}"
            if field == name:
                return ".".join((*section, key.name))
    return name


def own_key(form: str, name: str) -> str:
    """What a word of ours is in a form that has another key for it.

    >>> own_key("v2", "strategy"), own_key("v18", "save_dir"), own_key("v2", "epochs")
    ('runner.sync_mode', 'runner.save_checkpoint_path', 'runner.epochs')
    """
    whole = f"{PREFIX[form]}.{name}"
    if any(".".join((*at, key.name)) == whole for at, table in TABLES[form] for key in table):
        return whole
    field = {key.name: key.field for key in OURS}.get(name, "")
    for wanted in (field, field.replace(".reader", ".module")):
        if wanted and (found := key_of(form, wanted)) != wanted:
            return found
    return whole


def unused(reader: Reader, form: str, source: str) -> Iterator[str]:
    """A warning for each. source: the text of the model's folder, which may read any."""
    document = reader.document
    known = {
        ".".join((*section, key.name.removesuffix(".*")))
        for section, table in TABLES[form]
        for key in table
    }
    ours = {f"{PREFIX[form]}.{key.name}" for key in OURS}
    for path in reader.unused():
        dotted = ".".join(str(part) for part in path if not str(part).isdecimal())
        is_section = path[0] not in {section[0] for section, _ in TABLES[form] if section}
        if dotted in source or (is_section and f"{path[0]}." in source):
            continue
        own = own_key(form, path[-1]) if dotted in ours else dotted
        hint = f"write {own}" if own != dotted else nearest(dotted, known | ours, "leave it out")
        yield f"{document.source(path)}: nothing reads {dotted}; {hint}"
    yield from _unused_hyper(document, HYPER[form], set(re.findall(r"\w+", source)))


def _unused_hyper(document: Document, prefix: Path, words: set[str]) -> Iterator[str]:
    """Parameters whose names are nowhere in the folder. Those of the optimizer are ours to read."""
    for path in document.leaves() if words else ():
        inner = tuple(map(str, path[len(prefix) :]))
        if path[: len(prefix)] != prefix or not inner or inner[0] in OPTIMIZER:
            continue
        if inner[-1] not in words and inner[0] not in words:
            hint = nearest(inner[-1], words, "leave it out")
            where = document.source(path)
            yield f"{where}: the model does not read {'.'.join(inner)}; {hint}"
