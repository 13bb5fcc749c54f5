"""Generations of config.yaml, each a Form: its keys, and those that nothing reads. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from paddock.command_line import nearest
from paddock.errors import Problem
from paddock.rec.compat import v01, v18
from paddock.rec.config import v2
from paddock.rec.config.document import OPTION, Path
from paddock.rec.config.keys import OURS, Draft, Key, KeyReader

DATA = "write -o train_data_dir=..., or test_data_dir=..."
LEAVE = "leave it out"
OPTIMIZER = ("optimizer", "learning_rate", "reg")  # of hyper_parameters: read by learners


@dataclass(frozen=True)
class Form:
    """A generation of config.yaml: how its runs are read, and the keys of each section.

    ours: the section of our own keys, and of short words of -o. hyper: where the model's
    parameters are. workspaces: the keys that name a workspace, the first wins.
    """

    name: str
    read: Callable[..., list[Draft]]  # (reader, *, is_evaluation)
    tables: tuple[tuple[Path, Sequence[Key]], ...]
    ours: str
    hyper: Path
    workspaces: tuple[Path, ...]

    @cached_property
    def names(self) -> tuple[frozenset[str], frozenset[str]]:
        """The full names of the form's keys, and of our own."""
        keys = ((section, key) for section, table in self.tables for key in table)
        known = (".".join((*section, key.name.removesuffix(".*"))) for section, key in keys)
        return frozenset(known), frozenset(f"{self.ours}.{key.name}" for key in OURS)

    def key_of(self, field: str) -> str:
        """The key that a field is read from: what to write.

        >>> FORMS["v2"].key_of("reading.data"), FORMS["v18"].key_of("test.batch_size")
        ('runner.train_data_dir', 'dataset.batch_size')
        """
        for section, table in self.tables:
            side = f"{field.partition('.')[0]}." if section == ("dataset",) else ""
            for key in table:
                if side + key.field == field:
                    return ".".join((*section, key.name))
        return field

    def own_key(self, name: str) -> str:
        """The key that the form has for a word of ours.

        >>> FORMS["v2"].own_key("strategy"), FORMS["v18"].own_key("save_dir")
        ('runner.sync_mode', 'runner.save_checkpoint_path')
        """
        whole = f"{self.ours}.{name}"
        field = next((key.field for key in OURS if key.name == name), "")
        if field and whole not in self.names[0]:
            for wanted in (field, field.replace(".reader", ".module")):
                if (found := self.key_of(wanted)) != wanted:
                    return found
        return whole

    def unused(self, reader: KeyReader, source: str) -> Iterator[tuple[Problem, bool]]:
        """A problem for each key that nothing reads, and whether the run would be another one.

        So it is with data that -o names. source: the text of the model's folder, which may read
        any.
        """
        document, unread = reader.document, reader.unused()
        known, added = self.names
        words = set(re.findall(r"\w+", source))
        read = (path for path in document.leaves if path not in unread)
        # What is common to all names of a section makes no two of them alike.
        by_end = {name.rpartition(".")[2]: name for name in sorted(known | added)}
        by_end |= {path[-1]: ".".join(path) for path in read}
        for path in unread:
            dotted = ".".join(part for part in path if not part.isdecimal())
            is_section = path[0] not in {section[0] for section, _ in self.tables if section}
            if dotted in source or (is_section and f"{path[0]}." in source):
                continue
            where = document.source(path)
            is_option = where.startswith(OPTION)
            own = self.own_key(path[-1]) if dotted in added else dotted
            alike = get_close_matches(path[-1], by_end, n=1)
            wanted = by_end[alike[0]] if alike else ""
            if wanted in added:  # which stand in no section of the file
                wanted = alike[0] if is_option else self.own_key(alike[0])
            is_data = is_option and "data" in path[-1].lower()
            hint = f"did you mean '{wanted}'?" if wanted else DATA if is_data else LEAVE
            hint = f"write {own}" if own != dotted else hint
            yield Problem(f"{where}: nothing reads {dotted}", hint), is_data
        for path in document.leaves if words else ():
            inner = path[len(self.hyper) :]
            if path[: len(self.hyper)] != self.hyper or not inner or inner[0] in OPTIMIZER:
                continue
            if words.isdisjoint((inner[-1], inner[0])):  # the optimizer's are ours to read
                where = document.source(path)
                is_data = where.startswith(OPTION) and "data" in inner[-1].lower()
                hint = nearest(inner[-1], words, DATA if is_data else LEAVE)
                yield Problem(f"{where}: the model does not read {'.'.join(inner)}", hint), is_data


FORMS = {
    "v01": Form(
        "v01", v01.read, ((("train",), v01.TRAIN), (("evaluate",), v01.EVALUATE)), "train",
        ("train", "model", "hyper_parameters"),
        (("train", "workspace"), ("evaluate", "workspace")),
    ),
    "v18": Form(
        "v18", v18.read, (((), v18.TOP), (("dataset",), v18.DATASET), (("runner",), v18.RUNNER),
                          (("phase",), v18.PHASE)),
        "runner", ("hyper_parameters",), (("workspace",),),
    ),
    "v2": Form(
        "v2", v2.read, ((("runner",), v2.RUNNER), ((), v2.TOP)), "runner", ("hyper_parameters",),
        (("workspace",), *((section, "workspace") for section in v2.SECTIONS)),
    ),
}  # fmt: skip


def form_of(tree: Mapping[str, Any]) -> Form | None:
    """The generation that a file is of.

    >>> [form_of(tree).name for tree in ({"train": {}}, {"runner": []}, {"runner": {}})]
    ['v01', 'v18', 'v2']
    """
    if any(isinstance(tree.get(name), dict) for name in v2.SECTIONS):
        return FORMS["v2"]
    if isinstance(tree.get("train"), dict) or isinstance(tree.get("evaluate"), dict):
        return FORMS["v01"]
    is_v18 = any(isinstance(tree.get(name), list) for name in v18.TABLES) or "mode" in tree
    return FORMS["v18"] if is_v18 else None
