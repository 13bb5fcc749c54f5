"""The data of an online run as epochs of the training loop: each pass is waited for, then read."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from paddock.data.files import find_files
from paddock.errors import EXIT_DEADLINE, PaddockError, UsageError
from paddock.rec.learner import Source, SourceBatch
from paddock.rec.online.schedule import Online
from paddock.rec.settings import Reading


@dataclass(frozen=True)
class PassSource:
    """A Source. read: opens the files of one pass. now: seconds of a clock that never goes back;
    sleep: until the next look. say: takes a line for the user.
    """

    online: Online
    reading: Reading
    read: Callable[[Reading], Source]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    say: Callable[[str], None]

    def open(self, epoch: int, position: object | None) -> Iterator[SourceBatch]:
        """Wait for the pass of this number, and read it; nothing for one that is not planned."""
        if epoch not in self.online.numbers:
            return
        files = [path for place in self._directories(epoch) for path in self._wait(epoch, place)]
        if files:
            inner = self.read(replace(self.reading, paths=tuple(files)))
            yield from inner.open(epoch, position)

    def _directories(self, epoch: int) -> list[str]:
        return [d for root in self.reading.paths for d in self.online.directories(root, epoch)]

    def _wait(self, epoch: int, directory: str) -> list[str]:
        """The files of a directory, once it is complete. Raises PaddockError at the deadline."""
        began, has_said = self.now(), False
        while (found := ready(directory, self.online.done_file)) is None:
            limit = self.online.wait_seconds_max
            wanted = posixpath.join(directory, self.online.done_file)
            if self.now() - began >= limit:
                raise PaddockError(
                    f"pass {self.online.name(epoch)}: {wanted} has not come within {limit:g} s",
                    hint="runner.data_wait_second is how long it is waited for",
                    exit_code=EXIT_DEADLINE,
                    retryable=True,
                )
            if not has_said:
                self.say(f"pass {self.online.name(epoch)} waits for {wanted}")
                has_said = True
            self.sleep(self.online.sleep_seconds)
        return found


def ready(directory: str, done_file: str) -> list[str] | None:
    """The data files of a directory; None while it is not complete.

    done_file: the file that says so; "": the directory has files. With it a split may be empty.
    """
    if done_file:
        try:
            find_files([posixpath.join(directory, done_file)])
        except UsageError:
            return None
    try:
        found = [one.path for one in find_files([directory])]
    except UsageError:
        return [] if done_file else None
    return [path for path in found if posixpath.basename(path) != done_file]
