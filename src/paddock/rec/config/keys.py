"""A table of keys -> values of the right type, where each stands, and what is wrong. Pure.

A key is read into a field of a TrainingRun ("reading.batch_size"), means something that is done in
any case ("mapped"), changes nothing ("ignored"), or is refused with what to write instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paddock.command_line import nearest
from paddock.errors import Problem
from paddock.rec.config.document import Document, Path

MAPPED, IGNORED, REFUSED = "mapped", "ignored", "refused"  # kinds of keys that are not read
MAX_COUNT = 1 << 40


@dataclass(frozen=True)
class Key:
    """A key of a form. name: below the table's section; `*` at its end is all that is below.

    kind: a name of KINDS; or MAPPED, IGNORED, REFUSED. field: where the value goes. what: what it
    means; of a key that is not read, what to write instead. default: for people, where it differs
    from the field's own.
    """

    name: str
    kind: str
    field: str
    what: str
    default: str = ""


@dataclass(frozen=True)
class Given:
    """A value, and where it stands."""

    value: Any
    source: str


Settings = dict[str, Given]
DEFAULT = "default"  # the source of a value that nobody gave
EVERY = 1 << 30  # checkpoints to keep: all
FORMATS = ("slots", "criteo", "csv", "parquet", "words", "images")


@dataclass
class Draft:
    """A run before it is one: what the file says, by field."""

    name: str
    settings: Settings
    is_evaluation: bool


def default(settings: Settings, name: str, value: Any) -> None:
    """A form's default is set, unless the file or that of the bundled model has a value."""
    settings.setdefault(name, Given(value, DEFAULT))


class BadValue(Exception):
    """A value does not fit its key: the problem, in words that follow the value, and the hint."""


@dataclass
class KeyReader:
    """Takes values out of a document; remembers which were taken, and collects what is wrong."""

    document: Document
    expand: Callable[[str, str, Path], str]  # text, its source, its path -> text
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    used: set[Path] = field(default_factory=set)

    def read(self, table: Sequence[Key], section: Path, settings: Settings) -> None:
        """Put what the section says into the settings by field; of a wrong value a problem."""
        for key in table:
            path = (*section, *key.name.removesuffix(".*").split("."))
            self.used.add(path)
            if (value := self.document.get(path)) is None:
                continue
            source, dotted = self.document.source(path), ".".join(path)
            if key.kind == REFUSED:
                self.fault(source, f"{dotted} is not supported", key.what)
            elif key.field:
                if isinstance(value, str):
                    value = self.expand(value, source, path)
                try:
                    settings[key.field] = Given(value_of(key.kind, value), source)
                except BadValue as error:
                    what, hint = error.args
                    self.fault(source, f"{dotted} is {shown(dotted, repr(value))}: {what}", hint)

    def fault(self, source: str, what: str, hint: str = "") -> None:
        """Report what is wrong."""
        self.problems.append(Problem(f"{source}: {what}", hint))

    def unused(self) -> list[Path]:
        """Keys that nothing read, in the file's order."""
        leaves, used = self.document.leaves, self.used
        return [p for p in leaves if used.isdisjoint(p[: n + 1] for n in range(len(p)))]


# ------------------------------------------------------------------------------------ the kinds

_TREES = BadValue("tree-based deep match is not supported", "write single or cluster")
# The words of a kind; and others, which mean one of these or are refused.
CHOICES: dict[str, tuple[str, Mapping[str, str | BadValue]]] = {
    "engine": (
        "single local_cluster cluster",
        dict.fromkeys(("tdm_single", "tdm_local_cluster", "tdm_cluster"), _TREES),
    ),
    "strategy": (
        "sync async half_async geo",
        {
            "heter": BadValue(
                "heterogeneous servers are not supported", "write sync, async or geo"
            ),
            "gpubox": BadValue(
                "embeddings in GPU memory (gpubox) are not supported",
                "write async: embeddings are on the servers, dense layers use use_gpu",
            ),
        },
    ),
    "device": ("cpu gpu xpu npu", {}),
    "assignment": ("blocks modulo size dynamic", {}),
    "framework": ("paddle torch", {}),
    "missing": ("fail init zero", {}),
    "fleet_mode": ("ps pslib collective", {"pslib": "ps"}),
}
LEAST = {"whole number": None, "count": 1, "count or 0": 0, "interval": None}  # whole numbers
KINDS = (*CHOICES, *LEAST, "minutes", "true or false", "text", "path", "names", "name:width", "any")


def value_of(kind: str, value: Any) -> Any:
    """A value of YAML as its kind, one of KINDS, has it. Raises BadValue.

    >>> value_of("count", "3"), value_of("names", "a, b"), value_of("name:width", "dense:2,3")
    (3, ('a', 'b'), {'dense': 6})
    """
    if kind == "any":
        return value
    if kind in ("text", "path"):
        if isinstance(value, (dict, list)):
            raise BadValue("not a text", "write one word")
        return str(value) or None
    if kind == "names":
        if isinstance(value, dict):
            raise BadValue("not a list of names", 'write "a b c" or [a, b, c]')
        items = value if isinstance(value, list) else str(value).replace(",", " ").split()
        return tuple(str(each) for each in items)
    if kind == "name:width":  # or name:dim,dim: dimensions are multiplied
        if isinstance(value, dict):
            return {str(name): value_of("count", width) for name, width in value.items()}
        widths = {}
        for item in value if isinstance(value, list) else str(value).split():
            name, _, text = str(item).partition(":")
            dims = text.strip("[]").split(",") if text else []
            if not all(dim.isdecimal() and 0 < int(dim) < MAX_COUNT for dim in dims):
                raise BadValue(f"{item!r} is not name:width", "write dense_feature:13")
            widths[name] = math.prod(map(int, dims))
        return widths
    word = str(value).strip().lower()
    if kind == "true or false":
        if word not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
            raise BadValue("neither true nor false", "write True or False")
        return word in ("true", "1", "yes", "on")
    if kind in CHOICES:
        words, others = CHOICES[kind]
        chosen = others.get(word, word)
        if isinstance(chosen, BadValue):
            raise chosen
        if chosen not in words.split():
            can = [*words.split(), *(other for other in others if isinstance(others[other], str))]
            raise BadValue("there is no such word", nearest(word, dict.fromkeys(can)))
        return chosen
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise BadValue("not a number", "write a number")
    try:
        found = float(value)
    except (ValueError, OverflowError) as error:
        raise BadValue("not a number", "write a number") from error
    if not abs(found) <= MAX_COUNT:  # NaN, too
        raise BadValue("not a number one can count with", f"at most {MAX_COUNT}")
    if kind == "minutes":
        return max(found, 0.0) or None
    if found != int(found):
        raise BadValue("not a whole number", "write a whole number")
    if kind == "interval":  # -1 and 0 are off
        return max(int(found), 0) or None
    least = LEAST[kind]
    if least is not None and found < least:
        raise BadValue(f"less than {least}", f"write a whole number from {least} on")
    return int(found)


HIDDEN = "******"
WORDS = ("secret", "passw", "credential", "private_key", "access_key", "api_key", "apikey")
# A whole word between underscores: ak and sk are PaddleCloud's, ugi the file system's.
PARTS = frozenset(("ak", "sk", "ugi", "token", "pass", "pwd", "passwd"))
LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def is_secret(key: str) -> bool:
    """The key's name says that its value is not to be shown.

    >>> [is_secret(k) for k in ("submit.ak", "config.fs_ugi", "fs_client.passwd", "task_num")]
    [True, True, True, False]
    """
    last = key.rpartition(".")[2].lower().replace("-", "_")
    return any(word in last for word in WORDS) or not PARTS.isdisjoint(last.split("_"))


def shown(key: str, value: Any) -> str:
    """A value as it may be shown.

    >>> shown("ak", "x"), shown("train_data_dir", "s3://me:pw@host/x")
    ('******', 's3://***@host/x')
    """
    return HIDDEN if is_secret(key) and value not in (None, "") else LOGIN.sub("***@", str(value))


# Keys of Paddock's own: beside `epochs` in every form, or as `-o NAME=value`.
# fmt: off
OURS: tuple[Key, ...] = (
    Key("engine", "engine", "engine", "single, local_cluster or cluster"),
    Key("server_num", "count or 0", "cluster.servers", "servers of local_cluster and cluster"),
    Key("worker_num", "count", "cluster.workers", "workers of local_cluster and cluster"),
    Key("framework", "framework", "framework", "of bundled models: torch or paddle"),
    Key("seed", "whole number", "seed", "of initial values and of shuffling"),
    Key("device", "device", "device", "cpu, gpu, xpu or npu"),
    Key("strategy", "strategy", "strategy.name", "sync, async, half_async or geo"),
    Key("geo_step", "count", "strategy.geo_step", "geo: local steps between pushes"),
    Key("threads", "count", "strategy.threads", "of each worker"),
    Key("resume", "true or false", "resume", "go on from the newest checkpoint"),
    Key("warm_start", "path", "warm_start", "a checkpoint to begin with"),
    Key("warm_start_missing", "missing", "warm_start_missing",
        "what a warm start lacks: fail; init or zero go on without"),
    Key("max_restart", "count or 0", "cluster.max_restart",
        "how often processes that were killed are started again", default="3, with servers here"),
    Key("train_data_dir", "path", "reading.data", "training data"),
    Key("test_data_dir", "path", "test.data", "data to judge by"),
    Key("reader", "text", "reading.reader", "a user's .py; or slots, criteo, csv, parquet"),
    Key("test_reader", "text", "test.reader", "the same of test data; as reader if absent"),
    Key("sparse_slots", "names", "reading.sparse_slots", "in the file's order"),
    Key("dense_slots", "name:width", "reading.dense_slots", "in the file's order"),
    Key("label", "text", "reading.label", "the slot or column that is the label"),
    Key("padding", "whole number", "reading.padding", "id and value of a slot that is absent"),
    Key("pipe_command", "text", "pipe_command", "a command that reads files and prints samples"),
    Key("loader_processes", "count or 0", "reading.loader_processes",
        "that read and parse; 0: a thread"),
    Key("shuffle", "count or 0", "reading.shuffle", "examples in memory to draw from; 0: none"),
    Key("drop_last", "true or false", "reading.drop_last",
        "leave out a last batch that is not full"),
    Key("assignment", "assignment", "reading.assignment",
        "files to workers: blocks, modulo, size; dynamic: chunks to whoever is free"),
    Key("bad_max", "count or 0", "reading.bad_max", "bad lines that are left out"),
    Key("aside_max", "count or 0", "reading.aside_max",
        "dynamic: chunks of an epoch that may be unreadable", default="any number"),
    Key("data_wait_second", MAPPED, "", "online: how long data are waited for"),
    Key("save_dir", "path", "saving.directory", "where checkpoints go"),
    Key("save_every_epochs", "interval", "saving.every_epochs", "checkpoint every so many epochs"),
    Key("save_every_steps", "interval", "saving.every_steps", "checkpoint every so many batches"),
    Key("save_every_minutes", "minutes", "saving.every_minutes",
        "checkpoint every so many minutes"),
    Key("save_last", "true or false", "saving.last", "checkpoint at the end"),
    Key("keep", "count", "saving.keep", "checkpoints that are kept"),
    Key("export_dir", "path", "saving.export_directory", "where exported models go"),
    Key("export_every_epochs", "interval", "saving.export_every_epochs",
        "export every so many epochs"),
    Key("export_last", "true or false", "saving.export_last", "export at the end"),
    Key("event_dir", "path", "event_directory", "curves for TensorBoard or VisualDL"),
)
# fmt: on


def with_ours(table: Sequence[Key], *, without: Sequence[str] = ()) -> tuple[Key, ...]:
    """A form's table, and after it those of ours that it has no key for."""
    names = {key.name for key in table} | set(without)
    return (*table, *(key for key in OURS if key.name not in names))
