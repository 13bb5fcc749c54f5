"""Training data, each record once a pass: two lines in any script.

    for lines in paddock.data.stream("train/", batch_size=512):                 # one process
        ...
    data = paddock.data.stream("train/", batch_size=512, passes=3, client=client)  # with servers
    for epoch in data.epochs():
        for lines in data:
            ...
            client.step()

To ask for the next batch says that the one before was used. With a client, every trainer of the job
calls it alike; chunks go to who is free, and come back when a trainer dies.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paddock.data.chunks import Chunk
from paddock.data.dispatch.batches import LeasedBatch, LeasedBatches, flat
from paddock.data.dispatch.clients import LocalDispatcher, SharedDispatcher
from paddock.data.dispatch.messages import PassPlan
from paddock.data.files import Chunks, blocks, find_files, is_parquet, open_parquet
from paddock.errors import PaddockError, Problem, UsageError

if TYPE_CHECKING:
    from paddock.ps import Client

CHUNK_BYTES = 16 << 20
# Where a launcher tells how many processes train together.
PROCESSES = ("PADDLE_TRAINERS_NUM", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")
NAMED_MAX = 5


def chunk_name(chunk: Chunk) -> str:
    """The chunk, for people.

    >>> chunk_name(Chunk("train/part-0", 0, 4096))
    'train/part-0 [0:4096]'
    """
    return chunk.path if chunk.end < 0 else f"{chunk.path} [{chunk.start}:{chunk.end}]"


def read_records(
    chunk: Chunk, skip: int, encoding: str | None = "utf-8"
) -> Iterator[Sequence[Any]]:
    """The records of a chunk behind the first `skip`, in lists: lines of text, or rows as dicts.

    encoding: None gives lines as bytes. Raises: PaddockError, UnicodeDecodeError.
    """
    lists = _rows(chunk) if is_parquet(chunk.path) else _lines(chunk, encoding)
    for records in lists:
        if skip < len(records):
            yield records[skip:] if skip else records
        skip = max(0, skip - len(records))
    if skip:
        raise PaddockError(
            f"{chunk_name(chunk)} has {skip} records fewer than were trained of it",
            hint="was the file changed? a pass needs its files as they were when it began",
        )


def _lines(chunk: Chunk, encoding: str | None) -> Iterator[Sequence[Any]]:
    for block in blocks(chunk):
        text: Any = block if encoding is None else block.decode(encoding)
        newline: Any = b"\n" if encoding is None else "\n"
        lines = text.split(newline)
        if not lines[-1]:
            lines.pop()
        yield lines


def _rows(chunk: Chunk) -> Iterator[Sequence[Any]]:
    with open_parquet(chunk.path) as table:
        for group in range(chunk.start, chunk.end):
            yield table.read_row_group(group).to_pylist()


class DataStream:
    """See stream(). One loop over it is one pass; it belongs to one thread."""

    def __init__(
        self, port: LocalDispatcher | SharedDispatcher, feed: LeasedBatches, chunks: Chunks
    ) -> None:
        self._port = port
        self._feed = feed
        self._chunks = chunks
        self._named = 0
        if isinstance(port, SharedDispatcher):
            port.attach(feed.use_latest)

    @property
    def is_shared(self) -> bool:
        """True when other processes read the stream too: it has a client."""
        return isinstance(self._port, SharedDispatcher)

    def __iter__(self) -> Iterator[Any]:
        """The batches of one pass that this process gets."""
        yield from self._feed.batches()
        self._warn()

    def items(self) -> Iterator[LeasedBatch | None]:
        """As a loop over the stream, but nothing counts as used before `used(item)`: for programs
        that read ahead. None: the next one comes when all that were given are used."""
        yield from self._feed.items()
        self._warn()

    def used(self, item: LeasedBatch | None = None) -> None:
        """The batch was used: the one of the last turn of the loop, or an item of `items()`.

        With a client, call it before client.step(), which does it for a loop by itself.
        """
        if item is None:
            self._feed.use_latest()
        else:
            self._feed.use(item)

    def epochs(self) -> Iterator[int]:
        """The numbers of the passes that are left, also after a restart: the loop around the loop.

        Raises: UsageError where the stream was given no number of passes.
        """
        if not self._feed.plan.passes:
            raise UsageError("the stream has no number of passes", hint="stream(..., passes=10)")
        self._feed.begin()
        while not self._feed.is_ended:
            yield self._feed.pass_

    def report(self) -> dict[str, Any]:
        """How far the pass is over all processes: chunks done and leased, records, set aside."""
        found = self._port.progress()
        for one in found.get("aside", ()):
            one["name"] = chunk_name(self._chunks[one["chunk"]])
        return found

    def _warn(self) -> None:
        """Name what was set aside since the last time. Raises: PaddockError where all was."""
        report = self.report()
        aside = report.get("aside", [])
        if aside and not self.is_shared and not report["records"]:
            raise PaddockError(
                f"nothing of the data could be read; {aside[0]['name']}: {aside[0]['reason']}",
                hint="paddock data check; encoding=None gives bytes",
            )
        fresh, self._named = aside[self._named :], len(aside)
        if fresh:
            names = [f"{a['name']} from record {a['start']} on: {a['reason']}" for a in fresh]
            more = f" and {len(names) - NAMED_MAX} more" * (len(names) > NAMED_MAX)
            text = f"{len(names)} chunks were set aside: " + "; ".join(names[:NAMED_MAX]) + more
            warnings.warn(text, stacklevel=3)

    def state_dict(self) -> dict[str, Any]:
        """The stream's position, behind the batch that was asked for last; for a checkpoint.

        Raises: UsageError with a client, whose servers' checkpoints have it.
        """
        if not isinstance(self._port, LocalDispatcher):
            raise UsageError(
                "the position of this stream is kept by the servers",
                hint="client.save() has it, and client.load() before the stream is made",
            )
        self._feed.use_latest()
        return {**self._port.to_json(), "digest": self._feed.plan.digest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, before the first batch. Raises: UsageError."""
        if not isinstance(self._port, LocalDispatcher) or self._port.notes:
            raise UsageError(
                "a stream takes a state before its first batch, and without a client",
                hint="data = stream(...); data.load_state_dict(state); then the loop",
            )
        if state.get("digest") != self._feed.plan.digest:
            raise UsageError(
                "the state is of other files, or of other chunks",
                hint="the same paths with the same sizes, and the same chunk_bytes",
            )
        self._port.restore(state)

    def close(self) -> None:
        """Give back what was begun and not used: other workers go on there."""
        self._feed.leave()
        if isinstance(self._port, SharedDispatcher):
            self._port.detach()

    def __enter__(self) -> DataStream:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()


def stream(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    batch_size: int = 1,
    *,
    client: Client | None = None,
    parse: Callable[[list[Any]], Any] | None = None,
    passes: int = 0,
    seed: int | None = 0,
    chunk_bytes: int = CHUNK_BYTES,
    encoding: str | None = "utf-8",
    tries: int = 3,
    aside: int | None = None,
    name: str = "train",
    alone: bool = False,
) -> DataStream:
    """Batches of `batch_size` records of the files, each record once a pass.

    Args:
        paths: Files, directories, globs or URLs. A record is a line without its newline, or a row
            of Parquet as a dict.
        batch_size: Records of a batch; the last one may have fewer.
        client: Of the servers that deal out the data among all trainers; None: there are none.
        parse: From a list of records to the batch.
        passes: How many the job makes. 0: a loop is the pass that is open, or a new one; who comes
            when it is over reads all of it again.
        seed: Of the order of chunks; None as listed.
        chunk_bytes: How much of a file is dealt out at a time.
        encoding: Of the text; None gives bytes.
        tries: How often a chunk may fail before it is set aside.
        aside: How many chunks may be set aside; None any.
        name: Of these data, where a job reads several.
        alone: This process reads everything, also where others train beside it.

    Raises:
        UsageError: with all that is wrong.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    problems = [
        Problem(f"{what} is {value!r}", "a whole number, at least 1")
        for what, value in (
            ("batch_size", batch_size),
            ("tries", tries),
            ("chunk_bytes", chunk_bytes),
        )
        if value < 1
    ]
    if client is None and not alone:
        problems += _not_alone(os.environ)
    if problems:
        raise UsageError.of(problems)
    chunks = Chunks(find_files(given), chunk_bytes)
    if not len(chunks):
        raise UsageError(f"the {len(chunks.files)} files are empty", hint="name files with data")
    plan = PassPlan(chunks.digest(), len(chunks), passes, seed, tries, aside)
    port = LocalDispatcher() if client is None else SharedDispatcher(client, name)
    feed = LeasedBatches(
        port,
        plan,
        lambda index, skip: read_records(chunks[index], skip, encoding),
        batch_size,
        make=lambda parts: parse(flat(parts)) if parse is not None else flat(parts),
        name=lambda index: chunk_name(chunks[index]),
    )
    return DataStream(port, feed, chunks)


def refuse_loader_process(loader: object) -> None:
    """Raises: UsageError in a loader's worker process. loader: what get_worker_info() gives."""
    if loader is not None:
        raise UsageError(
            "a loader's worker process reads ahead, and cannot say what was used",
            hint="DataLoader(data, batch_size=None, num_workers=0), and parse= in the stream",
        )


def _not_alone(env: Mapping[str, str]) -> list[Problem]:
    """Several processes that each read everything would train every record several times."""
    for one in PROCESSES:
        if env.get(one, "").isdigit() and int(env[one]) > 1:
            return [
                Problem(
                    f"{env[one]} processes train together ({one}), and this stream has no client: "
                    "each of them would read everything",
                    "paddock launch --server-num 1, and stream(..., client=paddock.ps.Client()); "
                    "or alone=True",
                )
            ]
    return []
