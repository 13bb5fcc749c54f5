"""A log in a data directory has a name, under which the witness knows it; and it tells whether the
machine went down under it.

    member.json: server (63 bits), boot (of the machine), is_clean, is_whole

A log that may lack what was acknowledged gets a new name, under which it is in sync with nobody:
one whose machine went down before its bytes were on the disk, one that was being replaced by the
primary's, and an empty one, but where it is seen that nothing was written to it yet.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from paddock.ps.storage.files import DamageError, read_json, remove_tree, write_json
from paddock.ps.storage.segment import list_segments
from paddock.ps.storage.snapshot import list_snapshots
from paddock.ps.wire.values import value_from

_FILE = "member.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # random(4)
INCOMING = "incoming.tmp"


def new_name() -> int:
    """63 random bits, not 0."""
    return secrets.randbits(63) | 1


def boot_id() -> str:
    """Another one after each start of the machine; "" where the system has none."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The file's content. is_clean: everything is on the disk. is_whole: no primary's state was
    coming in."""

    server: int = 0
    boot: str = ""
    is_clean: bool = True
    is_whole: bool = True


class MemberFile:
    """The file in a data directory."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self.directory = directory
        self.say = say
        self._told = LogIdentity()
        self._had_log = False

    def prepare(self) -> None:
        """Before the log is opened: what was half replaced is nobody's."""
        if not self._read().is_whole:
            self.say("what the primary was sending was not complete: it is removed")
            remove_state(self.directory)
        self._had_log = bool(list_segments(self.directory))

    def open(self, *, is_empty: bool, is_on_disk: bool, is_alone: bool = False) -> int:
        """The log's name. is_empty: it has no record. is_on_disk: what was acknowledged is.

        is_alone: of a server that is not one of a pair.
        """
        told = self._read()
        is_same_boot = told.boot == boot_id()
        is_in_doubt = not (is_empty or is_on_disk or told.is_clean or is_same_boot)
        if is_in_doubt:
            then = "this server must catch up with the primary"
            if is_alone:
                then = "trainers that know of such ones are refused (--ack disk keeps all)"
            self.say(f"the machine went down: acknowledged pushes may be lost; {then}")
        # Of a process that died before its first record; a directory that was emptied has no log.
        is_new = self._had_log and is_same_boot
        is_known = told.server and not is_in_doubt and (is_new or not is_empty)
        return self.write(told.server if is_known else new_name())

    def write(self, server: int = 0, *, is_clean: bool = False, is_whole: bool = True) -> int:
        """Write it down; the log's name. server: another name for it, 0 for none."""
        self._told = LogIdentity(server or self._told.server, boot_id(), is_clean, is_whole)
        self.directory.mkdir(parents=True, exist_ok=True)
        write_json(self.directory / _FILE, asdict(self._told))
        return self._told.server

    def close(self) -> None:
        """The log was closed: it is on the disk."""
        self.write(is_clean=True, is_whole=self._told.is_whole)

    def _read(self) -> LogIdentity:
        path = self.directory / _FILE
        if not path.exists():
            return LogIdentity()
        try:
            told: LogIdentity = value_from(LogIdentity, read_json(path, "identity")[0])
        except (DamageError, ValueError) as error:
            self.say(f"{error}; the log gets a new name")
            return LogIdentity()
        return told


def remove_state(directory: Path) -> None:
    """Removes log and snapshots. A witness's registers stay."""
    for path in list_snapshots(directory):
        remove_tree(path)
    remove_log(directory)
    remove_tree(directory / INCOMING)


def remove_log(directory: Path) -> None:
    """Removes the log; nobody has it open."""
    for path in reversed(list_segments(directory)):
        path.unlink()
