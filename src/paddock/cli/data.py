"""``paddock data``: generate, split and check training data, and plan each worker's files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from paddock.backends.node.store import size_text
from paddock.cli.family import JSON, CliCommand, Operand, ParsedCommand, carry_out, named
from paddock.cli.ps_text import aligned
from paddock.command_line import flag
from paddock.errors import UsageError
from paddock.watch.meter import ProgressMeter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.data.chunks import DataFile
    from paddock.data.formats.format import Format
    from paddock.data.manifest import Manifest
    from paddock.rec.settings import Reading

FORMATS = ("auto", "slots", "criteo", "csv", "parquet")
HEAD_BYTES = 1 << 18  # that tell what the format is


def run(argv: Sequence[str]) -> int:
    """Carry out one order; the exit code."""
    return carry_out("data", COMMANDS, _with_key(list(argv)))


# ----------------------------------------------------------------------------------------- flags


def _with_key(words: list[str]) -> list[str]:
    """The arguments with `--by key COLUMN`, in one or two, as two flags of one value each.

    >>> _with_key(["x", "--by", "key", "3"]), _with_key(["--by=key 1:", "x"])
    (['x', '--by', 'key', '--key', '3'], ['--by', 'key', '--key', '1:', 'x'])
    """
    parts = [
        part
        for word in words
        for part in (("--by", word[5:]) if word.startswith("--by=key ") else (word,))
    ]
    for at, word in enumerate(parts[1:], 1):
        name, _, column = word.partition(" ")
        if parts[at - 1] == "--by" and name == "key" and (column or parts[at + 1 :]):
            columns = [column.strip()] if column else []
            return [*parts[:at], "key", "--key", *columns, *parts[at + 1 :]]
    return parts


PATHS = Operand("paths", "PATH", "files, directories, globs or URLs (fsspec) of data", most=0)
KINDS = ("criteo", "census", "interests", "words", "shapes")
SPLITS = ("lines", "bytes", "rows", "key")
RULES = ("modulo", "blocks", "size")
# fmt: off
GENERATE = (
    flag("out", "DIR", "where to write it", is_needed=True),
    flag("examples", "N", "how many, all files together", is_needed=True),
    flag("files", "N", "how many files", default="1"),
    flag("seed", "N", "another seed, other examples", default="1"),
    flag("vocab", "N", "categories of a slot or items [1000], or words [2000]"),
    flag("format", "FORM", "criteo: slots, tsv; census, interests: slots; words: text, ngram; "
         "shapes: npz, raw [the first]"),
    JSON,
)
SPLIT = (
    flag("count", "N", "how many shards", is_needed=True),
    flag("by", "", "equal lines, bytes or rows in order (Parquet: lines and bytes are whole row "
         "groups); or 'key COLUMN': all lines with the same value in one shard", choices=SPLITS,
         default="lines"),
    flag("key", "COLUMN", "what --by key becomes", status="hidden"),
    flag("seed", "N", "shuffle the lines; the same order for each seed"),
    flag("out", "DIR", "where to write them [FILE-shards]"),
    flag("name", "NAME", "of the shards, before their numbers [the first file's]"),
    flag("legacy", "", "total/N + 1 lines a shard, as prepare.py had it"),
    JSON,
)
CHECK = (
    flag("format", "FORM", "slots, criteo, csv, parquet, or a reader's .py [what the first line "
         "looks like]", default="auto"),
    flag("sparse-slots", "SLOTS", "'click 1 2 3', the label first [as in the data]"),
    flag("dense-slots", "SLOTS", "'dense_feature:13' [as in the data]"),
    flag("config", "FILE", "a config.yaml of paddock rec, which says how"),
    flag("padding", "N", "the id of an absent slot", default="0"),
    flag("samples", "N", "how many examples to show", default="10"),
    flag("workers", "N", "whether so many workers have a file each"),
    JSON,
)
PLAN = (
    flag("workers", "N", "how many there will be", is_needed=True),
    flag("by", "", "number of the name modulo N; contiguous blocks; about the same bytes",
         choices=RULES, default="blocks"),
    flag("repeat", "", "fewer files than workers: several read the same one"),
    JSON,
)
# fmt: on


# ---------------------------------------------------------------------------------------- orders


def _generate(args: ParsedCommand) -> int:
    from paddock.data.generate.write import GenerateRequest, generate

    wanted = GenerateRequest(
        args.kind, Path(args.out), args.examples, args.files, args.seed, args.vocab,
        args.format,
    )  # fmt: skip
    with ProgressMeter("generating", "examples", is_quiet=args.json) as meter:
        manifest = generate(wanted, meter)
    return _print_written(manifest, args)


def _print_written(manifest: Manifest, args: ParsedCommand) -> int:
    """Print the files of a directory that generate or split has written."""
    if args.json:
        print(json.dumps(manifest.as_json()))
        return 0
    counts = [shard.count for shard in manifest.shards]
    total = size_text(sum(shard.bytes for shard in manifest.shards))
    files = f"{len(counts)} file{'s' * (len(counts) != 1)}"
    print(f"{files}, {sum(counts):,} {manifest.unit}, {total}: {args.out}")
    for name, value in manifest.facts.items():
        if not isinstance(value, (list, dict)):
            print(f"  {name}: {value}")
    return 0


def _split(args: ParsedCommand) -> int:
    from paddock.data.files import find_files, is_parquet
    from paddock.data.split import SplitRequest, split

    files = find_files(args.paths)
    path = args.paths[0].rstrip("/")
    path = path if os.path.isdir(path) else files[0].path  # of a URL: below the working directory
    args.out = args.out or (path.rpartition("/")[2] if "://" in path else path) + "-shards"
    wanted = SplitRequest(
        files, args.count, Path(args.out), args.by, args.key, args.seed, args.legacy,
        args.name,
    )  # fmt: skip
    unit = "{:,}".format if is_parquet(files[0].path) else size_text
    with ProgressMeter("splitting", unit=unit, is_quiet=args.json) as meter:
        manifest = split(wanted, meter)
    return _print_written(manifest, args)


def _check(args: ParsedCommand) -> int:
    from paddock.cli.data_text import report_json, report_text
    from paddock.data.assign import assign
    from paddock.data.check import check
    from paddock.data.files import find_files

    files = find_files(args.paths)
    if args.workers is not None:
        assign(files, args.workers)
    name, form = _format(args, files)
    with ProgressMeter("checking", unit=size_text, is_quiet=args.json) as meter:
        report = check(files, form, args.samples, args.padding, meter)
    print(json.dumps(report_json(name, report)) if args.json else report_text(name, report))
    return 1 if report.wrong else 0


def _format(args: ParsedCommand, files: list[DataFile]) -> tuple[str, Format]:
    """The format given, or found in the first lines; with its slots."""
    from paddock.data.chunks import Chunk
    from paddock.data.files import blocks, is_parquet
    from paddock.data.formats.slots import format_of, slots_of_lines
    from paddock.rec.config.keys import BadValue, value_of
    from paddock.rec.readers.source import make_format

    name, (reading, config) = args.format, _config_reading(args.config)
    if name == "auto" and reading.reader:
        name = reading.reader
    if not name.endswith(".py") and name not in FORMATS:
        raise UsageError(f"no format '{name}'", hint=f"{', '.join(FORMATS)}, or a reader's .py")
    is_table = is_parquet(files[0].path)
    texts = () if is_table else files
    head = next((b for f in texts for b in blocks(Chunk(f.path), HEAD_BYTES)), b"")
    if name == "auto":
        name = "parquet" if is_table else format_of(head)
    if args.sparse_slots or args.dense_slots:
        try:
            names = value_of("names", args.sparse_slots or "")
            widths = value_of("name:width", args.dense_slots or "")
        except BadValue as error:
            raise UsageError(*error.args[:1], hint=error.args[1]) from error
        reading = replace(reading, sparse_slots=names, dense_slots=widths)
    is_declared = bool(reading.sparse_slots or reading.dense_slots)
    if not is_declared and name in ("csv", "parquet"):
        line = (
            "Parquet" if is_table else repr(head.split(b"\n", 1)[0][:60].decode("utf-8", "replace"))
        )
        raise UsageError(
            f"{files[0].path}: neither slot text nor Criteo's: {line}",
            hint="say which columns it has with --sparse-slots and --dense-slots, or --format",
        )
    padding = args.padding or reading.padding
    if not is_declared and name == "slots":
        return name, replace(slots_of_lines(head), padding=padding)
    paths = tuple(file.path for file in files)
    return name, make_format(replace(reading, paths=paths, reader=name, padding=padding), config)


def _config_reading(config: str | None) -> tuple[Reading, Mapping[str, object]]:
    """The reader settings in a config of `paddock rec`, and all its keys. Raises UsageError."""
    from paddock.rec.config.resolve import resolve
    from paddock.rec.settings import ModelKind, Reading

    nothing = Reading((), 1, "")
    if config is None:
        return nothing, {}
    # As inside of a cluster: the data that it names need not be here.
    recipe = resolve(["-m", config, "-r", "WORKER", "-o", "engine=cluster"])
    run = recipe.runs[0]
    reading = run.reading or run.test or nothing
    # A RecDataset makes batches of its own; what it reads is seen in the lines.
    return replace(reading, reader="") if run.contract is ModelKind.DYGRAPH else reading, run.config


def _plan(args: ParsedCommand) -> int:
    from paddock.data.assign import assign
    from paddock.data.files import find_files

    plan = assign(find_files(args.paths), args.workers, args.by, repeat=args.repeat)
    if args.json:
        workers = [
            {
                "worker": worker,
                "bytes": plan.bytes_of(worker),
                "files": [piece.path for piece in part],
            }
            for worker, part in enumerate(plan.parts)
        ]
        print(json.dumps({"by": plan.rule, "repeated": plan.repeated, "workers": workers}))
        return 0
    print(aligned(plan.table(), left=(3,)), end="")
    for remark in plan.remarks():
        print(remark)
    return 0


# fmt: off
COMMANDS = named(
    CliCommand("data generate", "write data whose best possible score is known", GENERATE,
        _generate,
            (Operand("kind", "KIND", "what it is like", "text", KINDS),), extra="ps"),
    CliCommand("data split", "cut files into shards for workers", SPLIT, _split, (PATHS,),
        extra="ps"),
    CliCommand("data check", "read data as training would, and say what is wrong with it", CHECK,
            _check, (PATHS,), extra="ps"),
    CliCommand("data plan", "show which worker reads which file", PLAN, _plan, (PATHS,),
        extra="ps"),
)
# fmt: on
