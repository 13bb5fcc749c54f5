"""Keys that nothing reads: neither Paddock nor the Python of the model's folder. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from paddock.errors import Problem
from paddock.rec.compat import v01, v18
from paddock.rec.config import v2
from paddock.rec.config.document import OPTION, Document, Path
from paddock.rec.config.keys import OURS, Key, KeyReader, nearest

Table = tuple[Path, Sequence[Key]]
TABLES: dict[str, tuple[Table, ...]] = {
    "v01": ((("train",), v01.TRAIN), (("evaluate",), v01.EVALUATE)),
    "v18": (
        ((), v18.TOP), (("dataset",), v18.DATASET), (("runner",), v18.RUNNER),
        (("phase",), v18.PHASE),
    ),
    "v2": ((("runner",), v2.RUNNER), ((), v2.TOP)),
}  # fmt: skip
DATA = "write -o train_data_dir=..., or test_data_dir=..."
LEAVE = "leave it out"
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
    """The key that a form has for a word of ours.

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


# Keys of each form, ours left out; and ours, where they stand in it.
KNOWN = {
    form: {
        ".".join((*section, key.name.removesuffix(".*")))
        for section, keys in tables
        for key in keys
    }
    for form, tables in TABLES.items()
}
OWN = {form: {f"{PREFIX[form]}.{key.name}" for key in OURS} for form in TABLES}


def is_known(form: str, dotted: str) -> bool:
    """The full key is one of the form's, or of ours.

    >>> is_known("v2", "runner.seed"), is_known("v2", "runner.learning_rate")
    (True, False)
    """
    return dotted in KNOWN[form] | OWN[form]


def unused(reader: KeyReader, form: str, source: str) -> tuple[list[str], list[Problem]]:
    """Warnings, and problems: data that -o names would be passed over, and others read instead.

    source: the text of the model's folder, which may read any.
    """
    document, known, ours = reader.document, KNOWN[form], OWN[form]
    # What is common to all names of a section makes no two of them alike.
    by_end = {name.rpartition(".")[2]: name for name in sorted(known | ours)}
    unread = reader.unused()
    read = (path for path in document.leaves() if path not in unread)
    by_end |= {str(path[-1]): ".".join(map(str, path)) for path in read}
    found: list[tuple[str, Problem]] = []
    for path in unread:
        dotted = ".".join(str(part) for part in path if not str(part).isdecimal())
        is_section = path[0] not in {section[0] for section, _ in TABLES[form] if section}
        if dotted in source or (is_section and f"{path[0]}." in source):
            continue
        own = own_key(form, path[-1]) if dotted in ours else dotted
        alike = get_close_matches(str(path[-1]), by_end, n=1)
        wanted = by_end[alike[0]] if alike else ""
        if wanted in ours:  # which stand in no section of the file
            is_option = document.source(path).startswith(OPTION)
            wanted = alike[0] if is_option else own_key(form, alike[0])
        hint = f"did you mean '{wanted}'?" if wanted else LEAVE
        hint = f"write {own}" if own != dotted else hint
        what = f"{document.source(path)}: nothing reads {dotted}"
        found.append((str(path[-1]), Problem(what, hint)))
    found += _unused_hyper(document, HYPER[form], set(re.findall(r"\w+", source)))
    warnings, problems = [], []
    for name, problem in found:
        if problem.message.startswith(OPTION) and "data" in name.lower():
            hint = DATA if problem.hint == LEAVE else problem.hint
            problems.append(Problem(problem.message, hint))
        else:
            warnings.append(f"{problem.message}; {problem.hint}")
    return warnings, problems


def _unused_hyper(
    document: Document, prefix: Path, words: set[str]
) -> Iterator[tuple[str, Problem]]:
    """Parameters whose names are nowhere in the folder. Those of the optimizer are ours to read."""
    for path in document.leaves() if words else ():
        inner = tuple(map(str, path[len(prefix) :]))
        if path[: len(prefix)] != prefix or not inner or inner[0] in OPTIMIZER:
            continue
        if inner[-1] not in words and inner[0] not in words:
            hint = nearest(inner[-1], words, LEAVE)
            what = f"{document.source(path)}: the model does not read {'.'.join(inner)}"
            yield inner[-1], Problem(what, hint)
