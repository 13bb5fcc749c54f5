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
from paddock.cli.family import JSON, CliCommand, Operand, ParsedCommand, carry_out
from paddock.cli.ps_text import aligned, moved_text, status_text
from paddock.command_line import flag
from paddock.errors import EXIT_OWN_FAULT, UsageError, problem_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.ps.client.admin import Admin, Seen
    from paddock.ps.durable.checkpoint import Checkpoint

FORMATS = ("npz", "safetensors", "paddle")
TIMEOUT_SECONDS = 10.0
PORT = 7163  # of the witness
ENDPOINTS = "endpoints.log"  # written by local/output/logs.py
HEADING = "PADDLE_PSERVERS_IP_PORT_LIST:"
TABLE_COLUMNS = ["name", "kind", "dim", "rows", "bytes", "optimizer", "lr", "step", "shards"]
STRATEGIES = ("sync", "half_async", "async", "geo", "staleness")


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


def _admin(given: ParsedCommand) -> Admin:
    """A client connected to all servers. Raises PaddockError naming one that was not reached."""
    admin = _unconnected(given)
    admin.connect()
    return admin


def _unconnected(given: ParsedCommand) -> Admin:
    from paddock.ps.client.admin import Admin, read_settings

    settings = read_settings(
        os.environ,
        endpoints=_endpoints(given),
        job=given.job,
        token_file=given.token_file,
        tls_ca=given.tls_ca,
        timeout=given.timeout,
    )
    return Admin(settings)


def _endpoints(given: ParsedCommand) -> str | None:
    if not given.log_dir:
        return given.endpoints  # type: ignore[no-any-return]  # a namespace
    if given.endpoints:
        raise UsageError("--endpoints and --log-dir are given", hint="one of them is enough")
    return _logged_endpoints(Path(given.log_dir))


def _logged_endpoints(log_dir: Path) -> str:
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
def _checkpoint(given: ParsedCommand, near: Path) -> Iterator[Checkpoint]:
    """The checkpoint of --checkpoint, or a temporary one of the servers' tables."""
    from paddock.ps.client.transfer import temporary_checkpoint
    from paddock.ps.durable.checkpoint import open_checkpoint

    if given.checkpoint:
        yield open_checkpoint(given.checkpoint)
        return
    with _admin(given) as admin, temporary_checkpoint(admin, near) as done:
        yield done


def _check_keep(given: ParsedCommand) -> None:
    if given.keep < 1:
        raise UsageError(f"--keep is {given.keep}", hint="1 or more")


def _tell(given: ParsedCommand, data: dict[str, Any], line: str) -> int:
    print(json.dumps(data, indent=2) if given.json else line)
    return 0


# ---------------------------------------------------------------------------------------- orders


def _status(given: ParsedCommand) -> int:
    seen = _unconnected(given).look()
    if given.json:
        print(json.dumps({"servers": [_seen_json(one) for one in seen]}, indent=2))
    else:
        print(status_text(seen), end="")
    lost = [one for one in seen if one.facts is None]
    if given.json or not lost:
        return EXIT_OWN_FAULT if lost else 0
    for one in lost:
        assert one.problem is not None
        sys.stderr.write(problem_text(one.problem))
    return max(one.problem.exit_code for one in lost if one.problem is not None)


def _seen_json(one: Seen) -> dict[str, Any]:
    data: dict[str, Any] = {"endpoint": one.endpoint, "server": one.server}
    if one.facts is None:
        assert one.problem is not None
        return {**data, "reachable": False, "problem": one.problem.message}
    return {**data, "reachable": True, **one.facts}


def _tables(given: ParsedCommand) -> int:
    with _admin(given) as admin:
        tables = admin.tables()
    if given.json:
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


def _save(given: ParsedCommand) -> int:
    _check_keep(given)
    with _admin(given) as admin:
        name = admin.save(given.directory, mode=given.mode, keep=given.keep)
    path = str(Path(given.directory).absolute() / name)
    return _tell(given, {"name": name, "path": path}, f"saved {path}")


def _load(given: ParsedCommand) -> int:
    from paddock.ps.client.checkpoints import objection_to_resume

    with _admin(given) as admin:
        done = admin.load(given.directory, name=given.name or "", of_job=given.from_job)
        problem = objection_to_resume(done, len(admin.peers))
    names = [spec.name for spec in done.specs]
    facts = {"path": str(done.path), "step": done.step, "tables": names, "warning": problem}
    told = f"loaded {done.path}: step {done.step}, {', '.join(names)}"
    return _tell(given, facts, f"{told}\nwarning: {problem}" if problem else told)


def _shrink(given: ParsedCommand) -> int:
    with _admin(given) as admin:
        tables = given.table or [t["name"] for t in admin.tables() if t["kind"] == "sparse"]
        dropped = {table: admin.shrink(table) for table in tables}
    lines = [f"{table}: {count} rows dropped" for table, count in dropped.items()]
    return _tell(given, {"dropped": dropped}, "\n".join(lines) or "there is no sparse table")


def _snapshot(given: ParsedCommand) -> int:
    with _admin(given) as admin:
        lsns = admin.snapshot()
    lines = [f"server {server}: snapshot at record {lsn}" for server, lsn in enumerate(lsns)]
    return _tell(given, {"lsns": lsns}, "\n".join(lines))


def _move(given: ParsedCommand) -> int:
    with _admin(given) as admin:
        one = admin.move(given.table, given.shard, given.to)
    return _tell(given, asdict(one), moved_text([one], given.table))


def _rebalance(given: ParsedCommand) -> int:
    with _admin(given) as admin:
        tables = given.table or [table["name"] for table in admin.tables()]
        done = {table: admin.rebalance(table) for table in tables}
    facts = {table: [asdict(one) for one in moves] for table, moves in done.items()}
    lines = [moved_text(moves, table) for table, moves in done.items()]
    return _tell(given, {"moved": facts}, "\n".join(lines) or "there is no table")


def _export(given: ParsedCommand) -> int:
    from paddock.ps.client import transfer

    out = Path(given.out)
    with _checkpoint(given, out) as done:
        names = transfer.write_tables(done, out, given.format, given.table, given.rule)
    facts = {"out": str(out), "step": done.step, "tables": names}
    return _tell(given, facts, f"wrote {out}: step {done.step}, {', '.join(names) or 'no table'}")


def _import(given: ParsedCommand) -> int:
    from paddock.ps.client import transfer
    from paddock.ps.spec import from_json

    path = Path(given.path)
    if given.checkpoint:
        spec = from_json({**_spec_file(given.spec), "name": given.table})
        read = transfer.read_table(path, given.format, spec, given.rule)
        job = given.job or os.environ.get("PADDLE_JOB_ID") or "default"
        done = transfer.make_checkpoint(Path(given.checkpoint), job, spec, read)
        where, count = str(done.path), len(read.weights)
    elif given.spec:
        raise UsageError("--spec is given without --checkpoint", hint="the servers know the spec")
    else:
        with _admin(given) as admin:
            spec = admin.place(given.table).spec
            read = transfer.read_table(path, given.format, spec, given.rule)
            count = transfer.give_to_servers(admin, given.table, read)
        where = "the servers"
    what = "rows" if spec.kind == "sparse" else "elements"
    facts = {"table": given.table, "count": count, "to": where}
    return _tell(given, facts, f"{given.table}: {count} {what} given to {where}")


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


def _publish(given: ParsedCommand) -> int:
    from paddock.ps.durable.serving import publish

    out = Path(given.directory)
    _check_keep(given)
    with _checkpoint(given, out) as done:
        path = publish(out, done, tables=given.table, keep=given.keep)
    facts = {"version": path.name, "path": str(path), "step": done.step}
    return _tell(given, facts, f"published {path}: step {done.step}")


def _witness(given: ParsedCommand) -> int:
    """Run a witness until SIGTERM or SIGINT."""
    from paddock.ps.link import read_token
    from paddock.ps.server.main import say
    from paddock.ps.server.witness import serve_witness

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    serve_witness(
        ended,
        port=given.port,
        data_dir=given.data_dir,
        bind=given.bind or ("0.0.0.0" if given.token_file else "127.0.0.1"),
        token=read_token(given.token_file or ""),
        tls_cert=given.tls_cert or "",
        tls_key=given.tls_key or "",
        say=say,
        ready=partial(print, flush=True),
    )
    return 0


def _explain(given: ParsedCommand) -> int:
    from paddock.ps.consistency.explain import explain

    if given.staleness < 0:
        raise UsageError(f"--staleness is {given.staleness}", hint="0 or more steps")
    names = given.strategy or STRATEGIES
    said = {
        name: explain(name, staleness=given.staleness, window=given.window, geo_step=given.geo_step)
        for name in names
    }
    return _tell(given, said, "\n".join(said.values()))


_order = partial(CliCommand, extra="ps")
# fmt: off
_ORDERS = (
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
COMMANDS = {order.name: order for order in _ORDERS}
