"""``paddock pserver``: a parameter server. Its flags are in paddock.ps.server.options."""

from __future__ import annotations

import os

from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NEEDED = "numpy"  # of the extra; numba and xxhash only make it faster


def run(argv: Sequence[str]) -> int:
    """Serve until told to end; the exit code."""
    from paddock.ps.server import options

    if argv and argv[0] in ("-h", "--help"):
        from paddock.cli.help import command_help

        print(command_help("pserver"), end="")
        print(options.usage(), end="")
        return 0
    try:
        from paddock.data.dispatcher import SERVICE, Dispatcher
        from paddock.ps.server import main
    except ImportError as error:
        raise missing_extra(error) from error
    return main.run(argv, os.environ, {SERVICE: Dispatcher()})


def missing_extra(error: ImportError) -> UsageError:
    """What to say where numpy is not installed. Raises `error` when it is another."""
    if (error.name or "").partition(".")[0] != NEEDED:
        raise error
    return UsageError(
        f"the parameter server needs {error.name}, which is not installed",
        hint="pip install numpy numba xxhash",
    )
