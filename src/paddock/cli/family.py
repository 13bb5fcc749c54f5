"""Commands and their subcommands ("orders"), as tables: parsed, documented and run here.

``COMMANDS`` of a module: name, as "ps save" or "list" -> CliCommand (named). A command line becomes
a ParsedCommand: an attribute for each value, of the type that its metavar tells.
"""

from __future__ import annotations

from types import SimpleNamespace

from paddock.command_line import (
    FALSE_WORDS,
    NO_DURATION,
    TRUE_WORDS,
    Flag,
    FlagTable,
    ParsedLine,
    flag,
    nearest,
    read_line,
    spelled,
    to_seconds,
)
from paddock.core.value import value
from paddock.errors import HelpAsked, Problem, UsageError
from paddock.jobfile.args import to_integer
from paddock.local.report.width import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

JSON = flag("json", "", "print JSON, for programs")


class ParsedCommand(SimpleNamespace):
    """The parsed arguments: an attribute for each flag and operand of a command."""


@value
class Operand:
    """An argument without dashes. kind: of its completion. most: 0 for any number.

    hidden: values that are accepted as well, and that no help shows.
    """

    name: str
    metavar: str
    help: str
    kind: str = "file"
    choices: tuple[str, ...] = ()
    least: int = 1
    most: int = 1
    hidden: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """The operand as it stands in a usage line."""
        text = self.metavar if self.most == 1 else f"{self.metavar} ..."
        return text if self.least else f"[{text}]"


@value
class CliCommand:
    """A command, or a subcommand ("order") of it.

    run: runs the parsed command. takes_args: runs the command with raw arguments, where another
    module reads them by the same table. usages: after "paddock NAME", where the usual one would
    not tell. notes: below what it does. extra: of the distribution, when a module is missing.
    more: flags that the notes tell of. common: names of the flags that --help shows first; the
    others are in --help-all.
    """

    name: str
    what: str
    flags: tuple[Flag, ...]
    run: Callable[[ParsedCommand], int] | None = None
    operands: tuple[Operand, ...] = ()
    takes_args: Callable[[Sequence[str]], int] | None = None
    usages: tuple[str, ...] = ()
    notes: str = ""
    examples: str = ""
    extra: str = ""
    goes_single: bool = False
    more: tuple[Flag, ...] = ()
    common: tuple[str, ...] = ()

    @property
    def table(self) -> FlagTable:
        """The command's flags."""
        return FlagTable(self.name, (*self.flags, *self.more), goes_single=self.goes_single)


def named(*commands: CliCommand) -> dict[str, CliCommand]:
    """The table of a module: commands by their names."""
    return {command.name: command for command in commands}


def carry_out(name: str, commands: Mapping[str, CliCommand], argv: Sequence[str]) -> int:
    """Run a command, or one of its subcommands ("orders"); returns the exit code.

    Raises: UsageError for an unknown order, wrong arguments and a package that is not installed.
    """
    words = list(argv)
    if name not in commands:
        if not words or words[0] in ("-h", "--help", "help"):
            raise HelpAsked(name)
        orders = [full.partition(" ")[2] for full in commands]
        if words[0] not in orders:
            hint = nearest(words[0], orders)
            raise UsageError(f"'{words[0]}' is not an order of paddock {name}", hint=hint)
        name = f"{name} {words.pop(0)}"
    command = commands[name]
    line = read_line(words, command.table)
    if line.is_help:
        raise HelpAsked(name)
    try:
        if command.takes_args is not None:
            return command.takes_args(words)
        assert command.run is not None
        return command.run(parse_command(command, line))
    except ImportError as error:
        from paddock.errors import missing_extra

        raise missing_extra(error, command.extra) from error


def parse_command(command: CliCommand, line: ParsedLine) -> ParsedCommand:
    """Parse the arguments of a command. Raises UsageError with all problems.

    The attribute is a list where the flag repeats, None where it is not given.
    """
    problems = list(line.problems)
    found: dict[str, object] = {}
    for one in command.table.flags:
        own = [each for each in line.flags if each.flag is one]
        values = [_typed(one, each.name, each.text, problems) for each in own]
        if not values and one.default:
            values = [_typed(one, one.names[-1], one.default, problems)]
        if not values and one.is_needed:
            name = spelled(one.name)
            problems.append(Problem(f"{name} is not given", f"write {name} {one.value}"))
        last = values[-1] if values else False if one.kind == "switch" else None
        found[one.field or one.key] = values or None if one.repeats else last
    rest = list(line.rest)
    for operand in command.operands:
        count = min(len(rest), operand.most or len(rest))
        taken, rest = rest[:count], rest[count:]
        if count < operand.least and line.is_whole:
            hint = f"write {usage_of(command)}"
            hint += f"; {operand.metavar}: {operand.help}" if operand.help else ""
            problems.append(Problem(f"{operand.metavar} is not given", hint))
        for word in taken:
            if operand.choices and word not in (*operand.choices, *operand.hidden):
                what = f"'{word}' is not one of its values"
                problems.append(Problem(what, nearest(word, operand.choices)))
        found[operand.name] = taken if operand.most != 1 else taken[0] if taken else None
    problems += [Problem(f"unexpected '{word}'", f"write {usage_of(command)}") for word in rest]
    if problems:
        raise UsageError.of(problems)
    for note in line.notes:
        say(f"warning: {note}")
    return ParsedCommand(**found)


def usage_of(command: CliCommand) -> str:
    """The usage line of a command.

    >>> usage_of(CliCommand("x", "", (JSON,), operands=(Operand("job", "JOB", "", least=0),)))
    'paddock x [JOB] [flags]'
    """
    needed = [f"{f.names[-1]} {f.value}" for f in command.flags if f.is_needed]
    words = ["paddock", command.name, *(one.usage for one in command.operands), *needed, "[flags]"]
    return " ".join(words)


def _typed(one: Flag, name: str, text: str, problems: list[Problem]) -> object:
    """A text as a value of its kind; a problem is added if it has no such value."""
    found: object = text
    if one.choices and text not in one.choices:
        problems.append(
            Problem(f"{name} {text}: not one of its values", nearest(text, one.choices))
        )
    elif one.kind == "int" and (found := to_integer(text)) is None:
        problems.append(Problem(f"{name} {text}: not a whole number", f"write {name} 2"))
    elif one.kind == "seconds" and (found := to_seconds(text)) is None:
        problems.append(Problem(f"{name} {text}: not a duration", NO_DURATION))
    elif one.kind == "switch":
        found = text.lower() in TRUE_WORDS
        if not found and text.lower() not in FALSE_WORDS:
            problems.append(Problem(f"{name} {text}: neither true nor false", f"write {name}"))
    return found
