"""`pipe_command`: a filter in any language between the data and us, as with QueueDataset.

Data on its stdin; on its stdout, for each example, `n v1 ... vn` for each slot in order. A command
that fails is an error with its exit code and the last of its stderr.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Thread
from typing import IO

from paddock.data.chunks import Chunk
from paddock.data.files import blocks, lines_of
from paddock.data.formats.format import Parsed, read_lines
from paddock.data.formats.numbers import plain_integer, plain_number
from paddock.data.formats.samples import Sample, SampleSlots, columns_of
from paddock.errors import PaddockError, UsageError

STDERR_BYTES = 2000


@dataclass(frozen=True)
class PipeFormat:
    """The examples that a command makes of data. names: the slots in the order it writes them."""

    command: str
    names: tuple[str, ...]
    slots: SampleSlots

    def __post_init__(self) -> None:
        if not self.names:
            raise UsageError(
                f"pipe_command '{self.command}' has no slots", hint="sparse_slots, dense_slots"
            )

    def read(self, chunk: Chunk) -> Iterator[Parsed]:
        """The examples of the chunk. Raises: PaddockError where the command or the file fails."""
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self.command],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
            assert process.stdin
            assert process.stdout
            wrong: list[PaddockError] = []
            feeder = Thread(target=_feed, args=(chunk, process.stdin, wrong), daemon=True)
            feeder.start()
            try:
                for block in lines_of(process.stdout, Chunk(self.command)):
                    yield self._parse(block)
                code = process.wait()
                feeder.join()
            finally:
                process.kill()
                process.wait()
                process.stdout.close()
            if wrong:
                raise wrong[0]
            if code:
                raise self._failure(code, errors)

    def _failure(self, code: int, errors: IO[bytes]) -> PaddockError:
        end = errors.seek(0, 2)
        errors.seek(max(0, end - STDERR_BYTES))
        text = errors.read().decode("utf-8", "replace").strip() or "nothing on stderr"
        ended = f"was killed by signal {-code}" if code < 0 else f"exited {code}"
        last = "\n  ".join(text.splitlines()[-5:])
        return PaddockError(
            f"pipe_command '{self.command}' {ended}; it said:\n  {last}",
            hint="try it: head -1 FILE | COMMAND",
            exit_code=code if 0 < code < 126 else 1,
        )

    def _parse(self, block: bytes) -> Parsed:
        found, parsed = read_lines(block, lambda line: self._sample(line.split()))
        return replace(parsed, batch=columns_of(found, self.slots))

    def _sample(self, fields: list[bytes]) -> Sample | str | None:
        """The slots of a line, or what is wrong with it; None of an empty one."""
        if not fields:
            return None
        found, at = [], 0
        for name in self.names:
            count = plain_integer(fields[at]) if at < len(fields) else None
            if count is None or not 0 <= count <= len(fields) - at - 1:
                return f"of pipe_command: slot {name!r}: no count, or fewer values than it says"
            read = plain_number if name in self.slots.dense else plain_integer
            values = [read(text) for text in fields[at + 1 : at + 1 + count]]
            if None in values:
                text = fields[at + 1 + values.index(None)].decode("utf-8", "replace")
                return f"of pipe_command: slot {name!r}: {text!r} is no value"
            found.append((name, values))
            at += 1 + count
        if at < len(fields):
            return (
                f"of pipe_command: {len(fields) - at} more fields than {len(self.names)} slots have"
            )
        return found


def _feed(chunk: Chunk, pipe: IO[bytes], errors: list[PaddockError]) -> None:
    """Write a chunk into a pipe. Who has read enough, or failed, says so by its exit code."""
    with suppress(BrokenPipeError), pipe:
        try:
            for block in blocks(chunk):
                pipe.write(block)
        except PaddockError as error:
            errors.append(error)
