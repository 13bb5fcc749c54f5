"""A frame is checked, and refused, before it is logged, so that applying cannot fail.

Everything here reads the store and changes nothing but the room for new rows; the frame's locks
are held.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import PaddockError
from paddock.ps.optimizers.updater import Updater
from paddock.ps.server.bodies import (
    CONTRIBUTION,
    STATISTICS,
    Body,
    dense_part,
    json_part,
    sparse_part,
)
from paddock.ps.server.tables import ServerSparseTable, ServerTable
from paddock.ps.shards import records
from paddock.ps.spec import DenseSpec, from_json, to_json
from paddock.ps.storage.checkpoint import Checkpoint, check_specs, open_checkpoint
from paddock.ps.storage.saving import see_checkpoint
from paddock.ps.storage.spool import SAVE
from paddock.ps.table.finite import check_finite
from paddock.ps.table.memory import machine_bytes
from paddock.ps.table.sharding import deal, shard_of
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import BODY_MAX, Header, Op
from paddock.ps.wire.offsets import offset_objection

if TYPE_CHECKING:
    from paddock.ps.server.store import Store
    from paddock.ps.storage.spool import Spool


STEP_MAX = 1 << 62
# Frames with a number of their trainer's: sent again under it, and carried out once.
NUMBERED = (Op.PUSH, Op.PUSH_DENSE, Op.SET, Op.SET_DENSE, Op.RATE, Op.COMMIT_OFFSET, Op.SKIP)
# Trainers that one server ever knows.
TRAINERS_MAX = 65536
# Lives of a trainer that one server may not have heard of.
INCARNATIONS_MAX = 1 << 16
NONCE_LENGTH_MAX = 64
AFTER_A_LOSS = (
    "start all servers with empty data directories, load a checkpoint, and start the job again; "
    "--ack disk survives a power cut"
)


def check(store: Store, header: Header, body: Body) -> None:
    """Raises RequestError when the frame cannot be applied. Changes no content."""
    op = header.op
    if header.sequence and op not in NUMBERED:
        raise RequestError(
            "usage", f"frames of op {op} have no number, this one has {header.sequence}"
        )
    if op in (Op.PUSH, Op.SET):
        _check_sparse(store, header, body)
    elif op in (Op.PUSH_DENSE, Op.SET_DENSE):
        _check_dense(store, header, body)
    elif op == Op.RATE:
        lr = json_part(body).get("lr")
        if not isinstance(lr, float) or not math.isfinite(lr) or lr < 0.0:
            raise RequestError("value", f"the learning rate is {lr!r}", hint="a number, 0 or more")
        _check_contribution(store, store.find(header.table), header, 0)
    elif op == Op.CREATE:
        _check_create(store, body)
    elif op == Op.LOAD:
        check_load(store, json_part(body))
    elif op == Op.COMMIT:
        _check_commit(store, json_part(body))
    elif op == Op.FENCE:
        facts = json_part(body)
        _check_states(store, facts.get("states"))
        # The last one of server 0, the coordinator; in sync no other server is further.
        done = facts.get("step")
        if isinstance(done, int) and done < store.committed:
            raise _lost_steps(store, 0, done, store.committed)
        check_incarnation(store, header.trainer, header.incarnation, facts.get("life"))
    elif op == Op.CLOSE:
        json_part(body)
    elif op == Op.COMMIT_OFFSET:
        no = offset_objection(json_part(body))
        if no is not None:
            raise no
    elif op == Op.SHRINK:
        shard = json_part(body).get("shard")
        held = store.sparse(header.table)
        if type(shard) is not int or not 0 <= shard < held.spec.shards:
            raise RequestError("usage", f"shrink of shard {shard!r}")
        if held.ownership.active:
            held.ownership.check_push(header, np.array([shard]))
    elif op in (Op.MOVE, Op.ADOPT):
        # A part of a shard that comes is held twice for a moment.
        limit = store.memory_limit_bytes
        if op == Op.ADOPT and limit and store.nbytes + 2 * len(body) > limit:
            raise _full(store, "it cannot take another shard", "or move the shard elsewhere")
        table = store.find(header.table)
        if op == Op.ADOPT and header.count:
            _, giver, _ = records.part_of(body)
            if giver == store.server or giver >= store.servers:
                raise RequestError("usage", f"server {giver} is not another one of {store.servers}")
        records.check(table, header, body)


def check_incarnation(store: Store, trainer: int, incarnation: object, nonce: object) -> None:
    """Refuses an incarnation of a trainer that is not its newest, and one that is far ahead of it.

    Server 0 numbers them one by one, so that is a number of nobody: it would put out all others.
    """
    newest, known = store.incarnations.get(trainer, (0, ""))
    if not isinstance(nonce, str | None) or len(nonce or "") > NONCE_LENGTH_MAX:
        raise RequestError(
            "usage", f"trainer {trainer}: a session nonce has {NONCE_LENGTH_MAX} letters at most"
        )
    if trainer not in store.incarnations and len(store.incarnations) >= TRAINERS_MAX:
        raise RequestError(
            "usage",
            f"trainer {trainer}: the server already knows {TRAINERS_MAX} trainers",
            hint="number trainers from 0; a restarted trainer keeps its number",
        )
    if not isinstance(incarnation, int) or incarnation > newest + INCARNATIONS_MAX:
        raise RequestError(
            "fenced", f"trainer {trainer}: no server gave it incarnation {incarnation!r}"
        )
    if incarnation < newest or (incarnation == newest and known != (nonce or "")):
        raise RequestError(
            "fenced",
            f"trainer {trainer}: incarnation {incarnation} is not its newest, {newest} is",
            hint="is another process running as this trainer? each needs its own PADDLE_TRAINER_ID",
            facts={"newest": newest},
        )


def _check_states(store: Store, given: object) -> None:
    """given: the ids of all servers' states, as a trainer that joins has found them."""
    if given is not None and not isinstance(given, list):
        raise RequestError("usage", f"the servers' states are {given!r}")
    if given is None or not store.states or given == store.states:
        return
    pairs = list(zip(given, store.states, strict=False))
    lost = [str(i) for i, (here, known) in enumerate(pairs) if here != known]
    raise RequestError(
        "lost",
        f"server {', '.join(lost) or 'list'} is not as it was when this job began: its tables "
        f"are gone (server {store.server} has known it with another state)",
        hint="give it back its --data-dir, or start all servers anew and load a checkpoint",
    )


def _check_sparse(store: Store, header: Header, body: Body) -> None:
    held = store.sparse(header.table)
    part = sparse_part(header, body, held.spec.dim)
    if store.servers > 1:  # Else all shards are here.
        held.ownership.check_push(header, shard_of(part.keys, held.spec.shards))
    for column in (part.rows, part.shows, part.clicks):
        if column is not None:
            check_finite(held.spec.name, column, part.keys)
    if header.flags & STATISTICS and not held.spec.accessor.statistics:
        raise RequestError(
            "usage",
            f"table {held.spec.name!r} keeps no statistics, but shows or clicks were pushed",
            hint="AccessorSpec(statistics=True)",
        )
    count, table = len(part.keys), held.table
    # A frame that was logged may not be carried out yet.
    is_wide = count + BODY_MAX // table.row_bytes <= table.rows_left
    if not (is_wide and store.has_bytes(count * table.row_bytes)):
        with held.lock.rows:
            _check_room(store, held, part.keys)
    _check_contribution(store, held, header, len(body))
    if not _has_arrays(held, count + BODY_MAX // _wire_bytes(held)):
        with held.lock.rows:
            _reserve(store, held, header, part.keys)


def reserve(store: Store, header: Header, body: Body) -> None:
    """Raises RequestError when there is no memory to carry out a record; its locks are held."""
    if header.op in (Op.PUSH, Op.SET):
        held = store.sparse(header.table)
        keys = sparse_part(header, body, held.spec.dim).keys
        if not _has_arrays(held, len(keys)):
            _reserve(store, held, header, keys)


def _wire_bytes(held: ServerSparseTable) -> int:
    """The bytes of a row in a frame, at least."""
    return 8 + 4 * held.spec.dim


def _has_arrays(held: ServerSparseTable, count: int) -> bool:
    """True when so many more rows, and those held for a step, fit without growing."""
    return held.table.is_sure_of(count + held.contributions.nbytes // _wire_bytes(held))


def _reserve(
    store: Store, held: ServerSparseTable, header: Header, keys: NDArray[np.int64]
) -> None:
    """Nothing else is being carried out. A contribution needs its memory when its step is done."""
    spare = 0
    if header.flags & CONTRIBUTION:
        keys = np.concatenate([keys, *held.contributions.keys()])
        spare = 3 * held.contributions.nbytes
    try:
        held.table.reserve(keys, spare)
    except MemoryError as error:
        what = f"more rows of table {held.spec.name!r}"
        raise _no_memory(store, what, error, ", or use max_rows with eviction='lru'") from error


def _no_memory(store: Store, what: str, error: MemoryError, hint: str = "") -> RequestError:
    """The system gives none."""
    return RequestError(
        "memory",
        f"server {store.server} holds {store.nbytes} bytes and gets no memory for {what}: {error}",
        hint=f"raise the limit on its memory (ulimit -v, overcommit), add servers{hint}",
    )


def _check_room(store: Store, held: ServerSparseTable, keys: NDArray[np.int64]) -> None:
    """Nothing else is being carried out."""
    name, table = held.spec.name, held.table
    if not table.has_room(keys):
        raise RequestError(
            "memory",
            f"table {name!r} has {table.rows} rows on server {store.server}, max_rows is "
            f"{held.spec.max_rows}: there is no room for {table.unknown(keys)} more",
            hint="raise max_rows, or let it evict: eviction='lru'",
        )
    left = max(0, store.memory_limit_bytes - store.nbytes)
    is_wide = store.has_bytes(len(keys) * table.row_bytes)
    if not is_wide and not table.has_room(keys, bytes_left=left):
        what = f"no row can be added to table {name!r}"
        raise _full(store, what, "add servers, or use max_rows with eviction='lru'")


def _full(store: Store, what: str, hint: str) -> RequestError:
    """The memory limit is reached."""
    limit = store.memory_limit_bytes or machine_bytes()
    return RequestError(
        "memory",
        f"server {store.server} holds {store.nbytes} bytes, the limit is {limit}: {what}",
        hint=f"raise --memory-limit, {hint}",
    )


def _check_dense(store: Store, header: Header, body: Body) -> None:
    held = store.dense(header.table)
    start, values = dense_part(header, body)
    stop = start + len(values)
    if held.ownership.active:
        held.ownership.check_push(header, records.dense_shards(held.spec, start, stop))
    check_finite(held.spec.name, values, None)
    if not held.table.holds_whole(start, stop):
        raise RequestError(
            "value",
            f"table {held.spec.name!r}: elements {start} to {stop} are no whole shards of "
            f"server {store.server}",
        )
    _check_contribution(store, held, header, len(body))


def _check_contribution(store: Store, held: ServerTable, header: Header, size: int) -> None:
    if not header.flags & CONTRIBUTION:
        return
    left = 0
    if not store.has_bytes(size):
        left = max(1, store.memory_limit_bytes - store.nbytes + held.contributions.nbytes)
    no = held.contributions.objection(header.step, size, left)
    if no is not None:
        raise no


def _check_create(store: Store, body: Body) -> None:
    try:
        spec = from_json(json_part(body))
        Updater(spec.optimizer, 1)
    except (ValueError, PaddockError) as error:
        raise RequestError(
            "usage", getattr(error, "message", str(error)), hint=getattr(error, "hint", "")
        ) from error
    here = store.by_name.get(spec.name)
    if here is None and isinstance(spec, DenseSpec):
        _check_room_for_dense(store, spec)
    if here is not None and here.spec != spec:
        raise RequestError(
            "spec",
            f"table {spec.name!r} was declared otherwise: "
            + ", ".join(differences(to_json(here.spec), to_json(spec))),
            hint="every trainer must declare a table in the same way; "
            "or these servers still hold an earlier run: restart them without its --data-dir",
        )


def differences(held: dict[str, Any], asked: dict[str, Any], where: str = "") -> list[str]:
    """The differences between two specs, each field by its full name.

    >>> differences({"dim": 4, "optimizer": {"lr": 0.5}}, {"dim": 4, "optimizer": {"lr": 0.1}})
    ['optimizer.lr is 0.5, asked 0.1']
    """
    names = [*held, *(name for name in asked if name not in held)]
    if held.get("kind") != asked.get("kind") and not where:
        names = ["kind"]  # The other fields have nothing in common.
    found = []
    for name in names:
        here, there = held.get(name), asked.get(name)
        if isinstance(here, dict) and isinstance(there, dict):
            found += differences(here, there, f"{where}{name}.")
        elif here != there:
            told = "not set" if name not in held else here
            wanted = "not set" if name not in asked else there
            found.append(f"{where}{name} is {told}, asked {wanted}")
    return found


def _check_room_for_dense(store: Store, spec: DenseSpec) -> None:
    """A dense table takes all its memory when it is made."""
    shards = deal(spec.shards, store.servers)[store.server]
    elements = spec.starts[shards.stop] - spec.starts[shards.start]
    needed = 4 * Updater(spec.optimizer, 1).width * elements
    if store.nbytes + needed > (store.memory_limit_bytes or machine_bytes()):
        what = f"table {spec.name!r} takes {needed} bytes there"
        raise _full(store, what, "add servers, or is its size wrong?")
    try:
        np.empty(needed, np.uint8)
    except MemoryError as error:
        raise _no_memory(store, f"table {spec.name!r}", error) from error


def check_load(store: Store, order: dict[str, Any]) -> None:
    """Raises RequestError, UsageError or DamageError when the checkpoint cannot be loaded here."""
    checkpoint = open_ordered(order)
    missing = [spec.name for spec in checkpoint.specs if spec.name not in store.by_name]
    if missing:
        # Made before, so that their locks are held: a snapshot must not fall in between.
        raise RequestError(
            "usage",
            f"server {store.server} has no table {missing[0]!r}, which the checkpoint has",
            hint="create the checkpoint's tables on every server, then load",
        )
    for held in store.tables:
        records.check_load(held)
    owned = {spec.name: store.by_name[spec.name].owned for spec in checkpoint.specs}
    checkpoint.verify(owned)
    check_specs(checkpoint, [held.spec for held in store.tables])
    _check_room_for(store, checkpoint)
    if any(held.contributions.nbytes for held in store.tables):
        raise RequestError(
            "usage",
            "a checkpoint cannot be loaded in the middle of a step",
            hint="load before the first push of a step, from one trainer, then barrier()",
        )


def _check_room_for(store: Store, checkpoint: Checkpoint) -> None:
    """A checkpoint that the memory limit does not allow is refused before it is read."""
    if not store.memory_limit_bytes:
        return
    saved = {spec.name for spec in checkpoint.specs}
    needed = 0
    for held in store.tables:
        name = held.spec.name
        if isinstance(held, ServerSparseTable) and name in saved:
            rows = sum(len(checkpoint.keys(name, shard)) for shard in held.owned)
            needed += rows * held.table.row_bytes
        else:
            needed += held.table.nbytes
    if needed > store.memory_limit_bytes:
        what = f"with its share of {checkpoint.path} it would hold {needed}"
        raise _full(store, what, "or add servers")


def _lost_steps(store: Store, lost: int, newest: int, job: int) -> RequestError:
    """Server `lost` came back from a log that ends too early."""
    return RequestError(
        "lost",
        f"the newest step of server {lost} is {newest}, the job is at {job} (server "
        f"{store.server} says): the end of its log is lost",
        hint=AFTER_A_LOSS,
        facts={"step": newest},
    )


def _check_commit(store: Store, data: dict[str, Any]) -> None:
    """Raises RequestError when the body is not
    {"step": n, "members": [[trainer, incarnation], ...]} of the next step, or of one
    that is done."""
    step, members = data.get("step"), data.get("members")
    is_right = type(step) is int and 0 < step < STEP_MAX and isinstance(members, list)
    for member in members if isinstance(members, list) else ():
        is_right &= isinstance(member, list) and [type(part) for part in member] == [int, int]
    if not is_right or data.keys() != {"step", "members"}:
        raise RequestError("usage", f"commit of step {step!r} by {members!r}")
    newest: int = data["step"]
    if newest > store.committed + 1:
        raise _lost_steps(store, store.server, store.committed, newest)
    if newest > store.committed:
        _check_incarnations(store, newest, dict(data["members"]))


def _check_incarnations(store: Store, step: int, members: dict[int, int]) -> None:
    """Refuses a commit of an incarnation whose next one gives to the same step: the coordinator
    began it anew."""
    for held in store.tables:
        for trainer, incarnation in held.contributions.incarnations(step).items():
            if incarnation > members.get(trainer, incarnation):
                raise RequestError(
                    "lost",
                    f"step {step} was committed before trainer {trainer} was started again, and "
                    "server 0 does not know of it: the end of its log is lost",
                    hint=AFTER_A_LOSS,
                )


def check_save(store: Store, order: dict[str, Any], spool: Spool) -> dict[str, Any]:
    """True when this server can write its part of a checkpoint: there, or else in its spool.

    Raises RequestError or PaddockError.
    """
    _check_texts(order, "directory", "name")
    if is_apart(order):
        spool.begin_save(order["name"])
        spool.forget(SAVE)
        return {"sees": False}
    see_checkpoint(order["directory"], order["name"], store.server)
    return {"sees": True}


def is_apart(order: dict[str, Any]) -> bool:
    """True when a save is fetched by a client whose directory this server does not see."""
    parent = os.path.join(order["directory"], order["name"] + ".tmp")
    return bool(order.get("fetch")) and not os.path.isdir(parent)


def check_ordered(store: Store, order: dict[str, Any], spool: Spool | None) -> dict[str, Any]:
    """As check_load; or {"into"}, where the files may be sent that are not to be seen here.

    Raises RequestError, UsageError or DamageError.
    """
    _check_texts(order, "directory", "name", "checksum")
    is_here = os.path.isdir(os.path.join(order["directory"], order["name"]))
    if spool is not None and order.get("send") and not is_here:
        return {"into": str(spool.begin_load(order["checksum"]))}
    check_load(store, order)
    return {}


def _check_texts(order: dict[str, Any], *names: str) -> None:
    for name in names:
        if not isinstance(order.get(name), str):
            raise RequestError("usage", f"a checkpoint's {name} is {order.get(name)!r}")


def open_ordered(order: dict[str, Any]) -> Checkpoint:
    """The checkpoint that an order names. Raises RequestError, UsageError or DamageError."""
    _check_texts(order, "directory", "name", "checksum")
    checkpoint = open_checkpoint(order["directory"], name=order["name"])
    if checkpoint.checksum != order["checksum"]:
        raise RequestError(
            "value",
            f"checkpoint {checkpoint.path} is not the one that was asked for",
            hint="was it written anew meanwhile? load again",
        )
    return checkpoint
