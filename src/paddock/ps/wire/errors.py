"""Why a server refuses a frame: a word a client can act on, and the sentence a person reads."""

from __future__ import annotations

import json
from typing import Any, Literal

from paddock.errors import EXIT_OWN_FAULT, EXIT_USAGE, PaddockError

Code = Literal[
    "usage",  # the request is wrong, and will be wrong again
    "unknown-table",
    "spec",  # another trainer declared the table differently
    "value",  # NaN, Inf, or a shape that does not fit
    "memory",  # the memory limit, or max_rows
    "disk",  # the log cannot be written
    "auth",
    "lost",  # the server is not the one that was here before: its state is gone
    "fenced",  # a newer incarnation of the trainer, or a newer term of the server, is known
    "behind",  # the step asked for is not committed here yet
    "moved",  # the shard is another server's; the answer holds the new owners
    "expelled",  # the trainer was silent for too long and is no member any more
    "failed",  # the job has failed; the sentence says which trainer, and why
    "not-primary",
    "deadline",
    "internal",
]
_EXIT_USAGE = ("usage", "unknown-table", "spec", "value", "auth")


class RequestError(PaddockError):
    """A server's no. Nothing of the frame was applied.

    Examples:
        >>> error = RequestError("memory", "no room", hint="--memory-limit")
        >>> RequestError.from_body(error.to_body()).code
        'memory'
    """

    def __init__(
        self, code: Code, message: str, *, hint: str = "", facts: dict[str, object] | None = None
    ) -> None:
        exit_code = EXIT_USAGE if code in _EXIT_USAGE else EXIT_OWN_FAULT
        super().__init__(message, hint=hint, exit_code=exit_code)
        self.code: Code = code
        self.facts = facts or {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.message), self.__dict__

    def to_body(self) -> bytes:
        """The refusal as the JSON of an error answer."""
        return json.dumps(
            {"code": self.code, "message": self.message, "hint": self.hint, "facts": self.facts}
        ).encode()

    @classmethod
    def from_body(cls, body: bytes | bytearray | memoryview) -> RequestError:
        """The refusal in an error answer's body."""
        data = json.loads(bytes(body))
        return cls(data["code"], data["message"], hint=data["hint"], facts=data.get("facts"))
