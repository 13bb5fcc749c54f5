"""``paddock pserver``: a parameter server. Its flags are in paddock.ps.server.options."""

from __future__ import annotations

import os

from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def run(argv: Sequence[str]) -> int:
    """Serve until told to end; the exit code."""
    try:
        from paddock.ps.server import options
    except ImportError as error:
        raise UsageError(
            f"the parameter server needs {error.name}", hint="pip install 'paddock[ps]'"
        ) from error
    if argv and argv[0] in ("-h", "--help"):
        from paddock.cli.help import command_help

        print(command_help("pserver"), end="")
        print(options.usage(), end="")
        return 0
    try:
        from paddock.ps.server import main
    except ImportError as error:
        raise UsageError(
            f"the parameter server needs {error.name}", hint="pip install 'paddock[ps]'"
        ) from error
    return main.run(argv, os.environ)
