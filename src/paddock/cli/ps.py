"""``paddock ps``: look at running parameter servers, and have them save, load, shrink and so on.

No trainer waits for this process: it is never a member of the job. Reading is allowed from any
job; what changes tables goes to the job that --job names.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from paddock.backends.node.store import size_text
from paddock.cli.family import JSON, CliCommand, Operand, ParsedCommand, carry_out, named
from paddock.cli.ps_text import aligned, moved_text, status_text
from paddock.command_line import flag
from paddock.errors import EXIT_OWN_FAULT, UsageError, problem_text
from paddock.ps.strategies import STRATEGIES, explain
from paddock.watch.meter import ProgressMeter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.ps.client.admin import Admin, ServerStatus
    from paddock.ps.storage.checkpoint import Checkpoint

FORMATS = ("npz", "safetensors", "paddle")
TIMEOUT_SECONDS = 10.0
PORT = 7163  # of the witness
ENDPOINTS = "endpoints.log"  # written by local/output/logs.py
HEADING = "PADDLE_PSERVERS_IP_PORT_LIST:"
TABLE_COLUMNS = ["name", "kind", "dim", "rows", "bytes", "optimizer", "lr", "step", "shards"]


def run(argv: Sequence[str]) -> int:
    """Carry out one order; the exit code."""
    if not argv:
        print("paddock ps looks after parameter servers: paddock ps --help shows its orders.")
        print("What is running here and elsewhere: paddock list.")
        return 0
    return carry_out("ps", COMMANDS, argv)


# ----------------------------------------------------------------------------------------- flags

# fmt: off
SERVERS = (
    flag("endpoints", "LIST", "host:port of every server, in order, commas between, '|' before a "
         "replica's (else $PADDLE_PSERVERS_IP_PORT_LIST)"),
    flag("log_dir", "DIR", "instead of --endpoints: the log directory of the job, which paddock "
         "launch runs"),
    flag("token-file", "FILE", "the servers' secret (else $PADDOCK_PS_TOKEN_FILE)"),
    flag("tls-ca", "FILE", "whom to trust, PEM (else $PADDOCK_PS_TLS_CA)"),
    flag("job", "NAME", "the job, for orders that change it (else $PADDLE_JOB_ID)"),
    flag("timeout", "DURATION", "longest wait for a server", default=f"{TIMEOUT_SECONDS:g}"),
    JSON,
)
TABLE = flag("table", "NAME", "which table", is_needed=True)
TABLES = flag("table", "NAME", "which table; repeatable [all]", repeats=True)
FORMAT = flag("format", "", "how it is written", choices=FORMATS, is_needed=True)
RULE = flag("rule", "NAME", "Paddle's rule, which says what columns its text has: naive, adagrad, "
            "std_adagrad, adam, shared_adam", default="naive")
SOURCE = (
    flag("checkpoint", "DIR", "read this one; no server is asked [the tables now]"), TABLES,
    *SERVERS,
)
# fmt: on


def _admin(args: ParsedCommand) -> Admin:
    """A client connected to all servers. Raises PaddockError naming one that was not reached."""
    admin = _unconnected(args)
    admin.connect()
    return admin


def _unconnected(args: ParsedCommand) -> Admin:
    from paddock.ps.client.admin import Admin, read_admin_settings

    settings = read_admin_settings(
        os.environ,
        endpoints=_endpoints(args),
        job=args.job,
        token_file=args.token_file,
        tls_ca=args.tls_ca,
        timeout=args.timeout,
    )
    return Admin(settings)


def _endpoints(args: ParsedCommand) -> str | None:
    if not args.log_dir:
        return args.endpoints  # type: ignore[no-any-return]  # a namespace
    if args.endpoints:
        raise UsageError("--endpoints and --log-dir are given", hint="one of them is enough")
    return logged_endpoints(Path(args.log_dir))


def logged_endpoints(log_dir: Path) -> str:
    """host:port of every server, in order, commas between. Raises UsageError."""
    path = log_dir / ENDPOINTS
    try:
        lines = path.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(
            f"{path} cannot be read: {why}",
            hint="--log-dir is the log directory of a job that paddock launch runs",
        ) from error
    if HEADING not in lines:
        raise UsageError(f"{path} names no server", hint="was the job started with --server-num?")
    listed = lines[lines.index(HEADING) + 1 :]
    return ",".join(takewhile(lambda line: not line.endswith(":"), listed))  # the next heading


@contextmanager
def _metered(args: ParsedCommand, what: str, noun: str = "servers") -> Iterator[Admin]:
    """A client as of _admin(); a progress meter shows how far its order is."""
    with ProgressMeter(what, noun, is_quiet=args.json) as meter, _admin(args) as admin:
        admin.progress = meter
        yield admin


@contextmanager
def _checkpoint(args: ParsedCommand, near: Path, what: str) -> Iterator[Checkpoint]:
    """The checkpoint of --checkpoint, or a temporary one of the servers' tables."""
    from paddock.ps.client.transfer import temporary_checkpoint
    from paddock.ps.storage.checkpoint import open_checkpoint

    if args.checkpoint:
        with ProgressMeter(what, is_quiet=args.json):
            yield open_checkpoint(args.checkpoint)
        return
    with _metered(args, what) as admin, temporary_checkpoint(admin, near) as done:
        yield done


def _check_keep(args: ParsedCommand) -> None:
    if args.keep < 1:
        raise UsageError(f"--keep is {args.keep}", hint="1 or more")


def _print_result(args: ParsedCommand, data: dict[str, Any], line: str) -> int:
    print(json.dumps(data, indent=2) if args.json else line)
    return 0


# ---------------------------------------------------------------------------------------- orders


def _status(args: ParsedCommand) -> int:
    seen = _unconnected(args).look()
    if args.json:
        print(json.dumps({"servers": [_seen_json(one) for one in seen]}, indent=2))
    else:
        print(status_text(seen), end="")
    lost = [one for one in seen if one.facts is None]
    if args.json or not lost:
        return EXIT_OWN_FAULT if lost else 0
    for one in lost:
        assert one.problem is not None
        sys.stderr.write(problem_text(one.problem))
    return max(one.problem.exit_code for one in lost if one.problem is not None)


def _seen_json(one: ServerStatus) -> dict[str, Any]:
    data: dict[str, Any] = {"endpoint": one.endpoint, "server": one.server}
    if one.facts is None:
        assert one.problem is not None
        return {**data, "reachable": False, "problem": one.problem.message}
    return {**data, "reachable": True, **one.facts}


def _tables(args: ParsedCommand) -> int:
    with _admin(args) as admin:
        tables = admin.tables()
    if args.json:
        print(json.dumps({"tables": tables}, indent=2))
        return 0
    rows = [["table", *TABLE_COLUMNS[1:]]]
    for one in tables:
        own = {"rows": "-", "dim": one["size"]} if one["kind"] != "sparse" else {}
        shown = {
            **one,
            **own,
            "bytes": size_text(one["bytes"]),
            "lr": f"{one['lr']:g}",
            "shards": "+".join(str(count) for count in one["servers"].values()),
        }
        rows.append([str(shown[name]) for name in TABLE_COLUMNS])
    print(aligned(rows, left=(0, 1, 5, 8)), end="")
    return 0


def _save(args: ParsedCommand) -> int:
    _check_keep(args)
    with _metered(args, "saving") as admin:
        name = admin.save(args.directory, mode=args.mode, keep=args.keep)
    path = str(Path(args.directory).absolute() / name)
    return _print_result(args, {"name": name, "path": path}, f"saved {path}")


def _load(args: ParsedCommand) -> int:
    from paddock.ps.storage.checkpoint import objection_to_resume

    with _metered(args, "loading") as admin:
        done = admin.load(args.directory, name=args.name or "", of_job=args.from_job)
        problem = objection_to_resume(done, len(admin.peers))
    names = [spec.name for spec in done.specs]
    facts = {"path": str(done.path), "step": done.step, "tables": names, "warning": problem}
    text = f"loaded {done.path}: step {done.step}, {', '.join(names)}"
    return _print_result(args, facts, f"{text}\nwarning: {problem}" if problem else text)


def _shrink(args: ParsedCommand) -> int:
    with _metered(args, "shrinking", "shards") as admin:
        tables = args.table or [t["name"] for t in admin.tables() if t["kind"] == "sparse"]
        dropped = {table: admin.shrink(table) for table in tables}
    lines = [f"{table}: {count} rows dropped" for table, count in dropped.items()]
    return _print_result(args, {"dropped": dropped}, "\n".join(lines) or "there is no sparse table")


def _snapshot(args: ParsedCommand) -> int:
    with _metered(args, "writing snapshots") as admin:
        lsns = admin.snapshot()
    lines = [f"server {server}: snapshot at record {lsn}" for server, lsn in enumerate(lsns)]
    return _print_result(args, {"lsns": lsns}, "\n".join(lines))


def _move(args: ParsedCommand) -> int:
    with _metered(args, "moving") as admin:
        one = admin.move(args.table, args.shard, args.to)
    return _print_result(args, asdict(one), moved_text([one], args.table))


def _rebalance(args: ParsedCommand) -> int:
    with _metered(args, "moving shards") as admin:
        tables = args.table or [table["name"] for table in admin.tables()]
        done = {table: admin.rebalance(table) for table in tables}
    facts = {table: [asdict(one) for one in moves] for table, moves in done.items()}
    lines = [moved_text(moves, table) for table, moves in done.items()]
    return _print_result(args, {"moved": facts}, "\n".join(lines) or "there is no table")


def _export(args: ParsedCommand) -> int:
    from paddock.ps.client import transfer

    out = Path(args.out)
    with _checkpoint(args, out, "exporting") as done:
        names = transfer.write_tables(done, out, args.format, args.table, args.rule)
    facts = {"out": str(out), "step": done.step, "tables": names}
    return _print_result(
        args, facts, f"wrote {out}: step {done.step}, {', '.join(names) or 'no table'}"
    )


def _import(args: ParsedCommand) -> int:
    from paddock.ps.client import transfer
    from paddock.ps.spec import from_json

    path = Path(args.path)
    if args.checkpoint:
        spec = from_json({**_spec_file(args.spec), "name": args.table})
        read = transfer.read_table(path, args.format, spec, args.rule)
        job = args.job or os.environ.get("PADDLE_JOB_ID") or "default"
        done = transfer.make_checkpoint(Path(args.checkpoint), job, spec, read)
        where, count = str(done.path), len(read.weights)
    elif args.spec:
        raise UsageError("--spec is given without --checkpoint", hint="the servers know the spec")
    else:
        with _metered(args, "importing") as admin:
            spec = admin.place(args.table).spec
            read = transfer.read_table(path, args.format, spec, args.rule)
            keys = [] if read.keys is None else [read.keys]
            admin.set(args.table, [*keys, read.weights])
            count = len(read.weights)
        where = "the servers"
    what = "rows" if spec.kind == "sparse" else "elements"
    facts = {"table": args.table, "count": count, "to": where}
    return _print_result(args, facts, f"{args.table}: {count} {what} given to {where}")


def _spec_file(name: str | None) -> dict[str, Any]:
    """A table's spec, as `paddock ps tables --json` prints it; defaults may be left out."""
    if not name:
        raise UsageError(
            "--checkpoint needs --spec FILE: the table's spec as JSON",
            hint='as {"kind": "sparse", "dim": 9, "optimizer": {"name": "adagrad", "lr": 0.05}}',
        )
    try:
        data = json.loads(Path(name).read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--spec {name}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"--spec {name} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise UsageError(f"--spec {name} is a JSON {type(data).__name__}, not an object")
    return data


def _publish(args: ParsedCommand) -> int:
    from paddock.ps.storage.serving import publish

    out = Path(args.directory)
    _check_keep(args)
    with _checkpoint(args, out, "publishing") as done:
        path = publish(out, done, tables=args.table, keep=args.keep)
    facts = {"version": path.name, "path": str(path), "step": done.step}
    return _print_result(args, facts, f"published {path}: step {done.step}")


def _witness(args: ParsedCommand) -> int:
    """Run a witness until SIGTERM or SIGINT."""
    from paddock.ps.connection import read_token
    from paddock.ps.replication.witness import serve_witness
    from paddock.ps.server.main import say

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    serve_witness(
        ended,
        port=args.port,
        data_dir=args.data_dir,
        bind=args.bind or ("0.0.0.0" if args.token_file else "127.0.0.1"),
        token=read_token(args.token_file or ""),
        tls_cert=args.tls_cert or "",
        tls_key=args.tls_key or "",
        say=say,
        ready=partial(print, flush=True),
    )
    return 0


def _explain(args: ParsedCommand) -> int:
    if args.staleness < 0:
        raise UsageError(f"--staleness is {args.staleness}", hint="0 or more steps")
    names = args.strategy or STRATEGIES
    texts = {
        name: explain(name, staleness=args.staleness, window=args.window, geo_step=args.geo_step)
        for name in names
    }
    return _print_result(args, texts, "\n".join(texts.values()))


_order = partial(CliCommand, extra="ps")
# fmt: off
COMMANDS = named(
    _order("ps status", "show each server, and who is waited for", SERVERS, _status),
    _order("ps tables", "show the tables", SERVERS, _tables),
    _order("ps save", "write a checkpoint", (
        flag("mode", "", "all rows, or those that changed", choices=("full", "delta"),
             default="full"),
        flag("keep", "N", "checkpoints to keep", default="3"), *SERVERS,
    ), _save, (Operand("directory", "DIRECTORY", "directory that all servers see", "dir"),)),
    _order("ps load", "read a checkpoint, of any number of servers", (
        flag("name", "NAME", "which one there [the newest whole one]"),
        flag("from-job", "NAME", "the job that saved it, if another"), *SERVERS,
    ), _load,
        (Operand("directory", "DIRECTORY", "what was saved to, or one checkpoint in it", "dir"),)),
    _order("ps shrink", "decay statistics and drop what tables give up", (TABLES, *SERVERS),
           _shrink),
    _order("ps move", "give a shard to another server, while trainers go on", (
        TABLE, flag("shard", "N", "from 0", is_needed=True),
        flag("to", "N", "server, from 0", is_needed=True), *SERVERS,
    ), _move),
    _order("ps rebalance", "spread shards evenly", (TABLES, *SERVERS), _rebalance),
    _order("ps snapshot", "have each server shorten its log", SERVERS, _snapshot),
    _order("ps export", "write weights as npz, safetensors or Paddle's text", (
        FORMAT, flag("out", "PATH", "file; paddle: directory", is_needed=True), RULE, *SOURCE,
    ), _export),
    _order("ps import", "read weights into a table, or into a checkpoint", (
        FORMAT, flag("in", "PATH", "file; paddle: directory", is_needed=True, field="path"), TABLE,
        RULE, flag("checkpoint", "DIR", "make one there instead; no server is asked"),
        flag("spec", "FILE", "with --checkpoint: the table's spec, JSON as in ps tables"), *SERVERS,
    ), _import),
    _order("ps publish", "make weights the version that serving readers get", (
        flag("keep", "N", "versions to keep", default="2"), *SOURCE,
    ), _publish,
        (Operand("directory", "DIRECTORY", "where paddock.ps serving readers look", "dir"),)),
    _order("ps witness", "say which server of a pair may serve", (
        flag("data-dir", "DIR", "where it keeps who may serve", is_needed=True),
        flag("port", "PORT", "0 for any free one", default=str(PORT)),
        flag("bind", "HOST", "address to listen on [127.0.0.1; 0.0.0.0 with a token]"),
        flag("token-file", "FILE", "the servers' secret"),
        flag("tls-cert", "FILE", "certificate, PEM"), flag("tls-key", "FILE", "its key, PEM"),
    ), _witness),
    _order("ps explain", "say what each strategy gives and takes", (
        flag("staleness", "N", "steps that a trainer may be ahead", default="0"),
        flag("window", "N", "pushes on their way", default="2"),
        flag("geo-step", "N", "steps between two pushes of geo", default="100"), JSON,
    ), _explain, (Operand("strategy", "STRATEGY", "which [all]", "text", STRATEGIES, 0, 0),)),
)
# fmt: on
