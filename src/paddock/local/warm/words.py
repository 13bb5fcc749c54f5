"""Messages of the launcher and the warm server: a kind, and lists of byte strings without NUL.

The server has its own copy (hook/sitecustomize.py): Paddock may not be installed where it runs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

Lists = list[list[bytes]]


def pack(lists: Iterable[Iterable[bytes]]) -> bytes:
    r"""Lists of byte strings as one.

    >>> pack([[b"a", b"b"], [], [b""]])
    b'2\x00a\x00b\x000\x001\x00'
    """
    fields = []
    for words in lists:
        fields.append(b"")
        at = len(fields) - 1
        fields.extend(words)
        fields[at] = b"%d" % (len(fields) - at - 1)
    return b"\0".join(fields)


def unpack(data: bytes) -> Lists:
    r"""What pack() made.

    >>> unpack(b"2\0a\0b\0000\0001\0")
    [[b'a', b'b'], [], [b'']]
    """
    fields, lists, at = data.split(b"\0"), [], 0
    while at < len(fields):
        end = at + 1 + int(fields[at])
        lists.append(fields[at + 1 : end])
        at = end
    return lists


class Inbox:
    """Puts together what comes over the socket: ``kind length`` on a line, then that many bytes."""

    def __init__(self) -> None:
        self._held = b""

    def take(self, data: bytes) -> list[tuple[str, Lists]]:
        """The messages that are complete now."""
        self._held += data
        found = []
        while b"\n" in self._held:
            line, _, rest = self._held.partition(b"\n")
            kind, _, length = line.partition(b" ")
            if len(rest) < int(length):
                break
            found.append((kind.decode(), unpack(rest[: int(length)])))
            self._held = rest[int(length) :]
        return found
