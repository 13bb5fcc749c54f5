"""Who may come in without a job key: the addresses of --ips, and of the names among them.

A name is looked up when somebody it could be stands at the door: the pods of a job get their
addresses one after the other. Looking up can take long, so a thread does it, one at a time.
"""

from __future__ import annotations

from paddock.local.addresses import addresses_of, canonical, in_thread, is_numeric

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from paddock.local.loop import Loop


class GuestList:
    """Owned by the loop's thread."""

    def __init__(self, ips: Sequence[str], loop: Loop) -> None:
        self._loop = loop
        self._addresses = {canonical(ip) for ip in ips if is_numeric(ip)}
        self._names = [ip for ip in ips if not is_numeric(ip)]
        self._found: set[str] = set()  # by the last look at the names
        self._waiting: list[tuple[str, Callable[[bool], None]]] = []

    def ask(self, address: str, then: Callable[[bool], None]) -> None:
        """Call then with whether this address may come in: now, or when the names are known."""
        address = canonical(address)
        is_open = not self._addresses and not self._names
        if is_open or address in self._addresses or address in self._found:
            then(True)
        elif not self._names:
            then(False)
        else:
            self._waiting.append((address, then))
            if len(self._waiting) == 1:
                self._look_up()

    def _look_up(self) -> None:
        waiting = len(self._waiting)

        def ask() -> list[str]:
            return [address for name in self._names for address in addresses_of(name)]

        in_thread(ask, self._loop.post, lambda found: self._answer(found, waiting))

    def _answer(self, found: list[str], count: int) -> None:
        """Tell those who waited before the look; look again for those who came meanwhile."""
        self._found = set(found)
        told, self._waiting = self._waiting[:count], self._waiting[count:]
        for address, then in told:
            then(address in self._found)
        if self._waiting:
            self._look_up()
