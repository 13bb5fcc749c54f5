"""A process that reads: units in on stdin, pieces out on stdout, until stdin ends.

What a user's reader prints goes to stderr: stdout is for the pieces.
"""

from __future__ import annotations

import os
import sys

from paddock.errors import PaddockError
from paddock.rec.readers.pieces import Unit, read_unit
from paddock.rec.readers.processes import Failure, UnitEnd, receive, send


def main() -> int:
    """Read until there is no more to read; 0."""
    out = os.fdopen(os.dup(1), "wb", buffering=1 << 20)
    os.dup2(2, 1)
    try:
        form = receive(sys.stdin.buffer)
        while True:
            unit = receive(sys.stdin.buffer)
            assert isinstance(unit, Unit)
            try:
                for piece in read_unit(form, unit):
                    send(out, piece)
            except PaddockError as error:
                send(out, Failure(error.message, error.hint, error.exit_code))
                return 0
            send(out, UnitEnd())
    except (EOFError, BrokenPipeError):  # Nobody wants more.
        return 0


if __name__ == "__main__":
    sys.exit(main())
