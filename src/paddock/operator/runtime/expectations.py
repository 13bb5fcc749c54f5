"""Expectations: what was written for one job and has not been seen in the caches yet.

While there is one the job is not looked at: a reconcile that cannot see its own pods would make
them again. Each is written down before its call is sent, since the watch may be faster than the
answer, and expires, since a watch may have missed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from paddock.operator.decision import Kind
    from paddock.operator.runtime.store import HasMeta

EXPIRY_SECONDS = 30.0
# create, change: an object of that name is there, or has another version. delete: that uid is gone.
What = Literal["create", "change", "delete"]
Token = tuple[What, str, str]  # (what was done, kind, name or uid)


class Expectations:
    """The expectations of one job. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._expire_at: dict[Token, float] = {}

    def __len__(self) -> int:
        return len(self._expire_at)

    def expect(self, what: What, kind: Kind, which: str, now: float) -> Token:
        """It will be seen. Give the token to ``withdraw`` if it will not."""
        token = (what, kind, which)
        self._expire_at[token] = now + EXPIRY_SECONDS
        return token

    def withdraw(self, token: Token) -> None:
        """It did not happen, or has been seen."""
        self._expire_at.pop(token, None)

    def see(self, kind: Kind, old: HasMeta | None, new: HasMeta | None) -> None:
        """The caches have changed."""
        if not self._expire_at:
            return
        if new is not None:
            self.withdraw(("create", kind, new.metadata.name))
            self.withdraw(("change", kind, new.metadata.name))
            if new.metadata.deletionTimestamp:
                self.withdraw(("delete", kind, new.metadata.uid))
        elif old is not None:
            self.withdraw(("change", kind, old.metadata.name))
            self.withdraw(("delete", kind, old.metadata.uid))

    def wait_seconds(self, now: float) -> float:
        """How long the first of them may stay open still; 0.0 when there is none."""
        for token in [t for t, at in self._expire_at.items() if at <= now]:
            del self._expire_at[token]
        return min(self._expire_at.values()) - now if self._expire_at else 0.0
