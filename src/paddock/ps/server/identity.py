"""Whose log is in a data directory: the name under which the witness knows it; and whether the
machine went down under it.

    member.json: server (63 bits), boot (of the machine), is_clean, is_whole

A log that may lack what was acknowledged gets a new name, under which it is in sync with nobody:
one whose machine went down before its bytes were on the disk, one that was being replaced by the
primary's, and an empty one, but where it is seen that nothing was written to it yet.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from paddock.ps.durable.files import DamageError, read_json, remove_tree, write_json
from paddock.ps.durable.segment import list_segments
from paddock.ps.durable.snapshot import list_snapshots

_FILE = "member.json"
_BOOT = Path("/proc/sys/kernel/random/boot_id")  # random(4)
INCOMING = "incoming.tmp"


def new_name() -> int:
    """63 random bits, not 0."""
    return secrets.randbits(63) | 1


def boot_id() -> str:
    """Another one after each start of the machine; "" where the system has none."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


class MemberFile:
    """The file, and what it says. server: the log's name."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self.path = directory / _FILE
        self.directory = directory
        self.say = say
        self.server = 0
        self.is_whole = True
        self._had_log = False

    def prepare(self) -> None:
        """Before the log is opened: what was half replaced is nobody's."""
        if self.path.exists() and not self._read().get("is_whole", True):
            self.say("what the primary was sending was not complete: it is removed")
            remove_state(self.directory)
        self._had_log = bool(list_segments(self.directory))

    def open(self, *, is_empty: bool, is_on_disk: bool, is_alone: bool = False) -> int:
        """The log's name. is_empty: it has no record. is_on_disk: what was acknowledged is.

        is_alone: of a server that is not one of a pair.
        """
        told = self._read() if self.path.exists() else {}
        server = int(str(told.get("server", 0)))
        reason = ""
        if not (is_empty or is_on_disk or told.get("is_clean", True)):
            is_same_boot = told.get("boot") == boot_id()
            reason = (
                "" if is_same_boot else "the machine went down: acknowledged pushes may be lost"
            )
        if reason:
            then = "this server must catch up with the primary"
            if is_alone:
                then = "trainers that know of such ones are refused (--ack disk keeps all)"
            self.say(f"{reason}; {then}")
        # Of a process that died before its first record; a directory that was emptied has no log.
        is_new = self._had_log and told.get("boot") == boot_id()
        is_known = bool(server) and not reason and (is_new or not is_empty)
        self.server = server if is_known else new_name()
        self.write()
        return self.server

    def rename(self) -> int:
        """A new name: the log was emptied."""
        self.server = new_name()
        self.write()
        return self.server

    def write(self, *, is_clean: bool = False, is_whole: bool = True) -> None:
        """is_clean: everything is on the disk. is_whole: no primary's state is coming in."""
        self.is_whole = is_whole
        told = {
            "server": self.server,
            "boot": boot_id(),
            "is_clean": is_clean,
            "is_whole": is_whole,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        write_json(self.path, told)

    def close(self) -> None:
        """The log was closed: it is on the disk."""
        self.write(is_clean=True, is_whole=self.is_whole)

    def _read(self) -> dict[str, object]:
        try:
            return read_json(self.path, "identity")[0]
        except DamageError as error:
            self.say(f"{error.message}; the log gets a new name")
            return {}


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
