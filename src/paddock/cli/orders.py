"""``paddock COMMAND ORDER [flags]``: a command whose orders are the rows of a table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from paddock.cli.pserver import missing_extra
from paddock.errors import UsageError

# The names of a flag, and what argparse makes of it.
Flag = tuple[tuple[str, ...], dict[str, Any]]
# What it does, in a few words; its flags; what carries it out and gives the exit code.
Order = tuple[str, Sequence[Flag], Callable[[argparse.Namespace], int]]
JSON: Flag = ("--json",), {"action": "store_true", "help": "print JSON, for programs"}


def flag(*names: str, **facts: Any) -> Flag:
    """A flag, in the words of argparse's add_argument."""
    return names, facts


def run_order(
    command: str, orders: Mapping[str, Order], words: Sequence[str], *, silent: Sequence[str] = ()
) -> int:
    """Carry out one order; the exit code. silent: orders that print no JSON.

    Raises: UsageError for an unknown order, wrong flags and a package that is not installed.
    """
    if not words or words[0] in ("-h", "--help"):
        from paddock.cli.help import command_help

        print(command_help(command), end="")
        for name, (what, _, _) in orders.items():
            print(f"  {name:<10}{what}")
        print(f"flags of each: paddock {command} ORDER --help")
        return 0
    if words[0] not in orders:
        from paddock.jobfile.suggest import nearest

        hint = nearest(words[0], orders) or "one of " + ", ".join(orders)
        raise UsageError(f"'{words[0]}' is not an order of paddock {command}", hint=hint)
    what, flags, action = orders[words[0]]
    parser = _Parser(
        prog=f"paddock {command} {words[0]}",
        description=what[0].upper() + what[1:] + ".",
        allow_abbrev=False,
    )
    for names, facts in (*flags, *(() if words[0] in silent else (JSON,))):
        parser.add_argument(*names, **facts)
    try:
        given = parser.parse_args(words[1:])
    except SystemExit:  # --help, which has been printed; errors are UsageErrors.
        return 0
    try:
        return action(given)
    except ImportError as error:
        raise missing_extra(error) from error


class _Parser(argparse.ArgumentParser):
    """Tells errors as the other commands do."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", hint=f"{self.prog} --help")
