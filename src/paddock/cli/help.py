"""``paddock help [COMMAND [ORDER]]`` and every ``--help``, from the tables of the commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from paddock import __version__
from paddock.backends.flags import FLAGS as SUBMIT
from paddock.cli.explain import FLAGS as EXPLAIN
from paddock.cli.explain_kubernetes import COMMANDS as KUBERNETES
from paddock.cli.family import CliCommand, Operand, ParsedCommand, named, usage_of
from paddock.cli.main import ALL, GROUPS, SHARED
from paddock.cli.main import COMMANDS as NAMES
from paddock.command_line import HELP, HELP_ALL, Flag, flag, nearest, read_line, spelled
from paddock.errors import HelpAsked, UsageError
from paddock.jobfile.flags import COMMON, FLAGS
from paddock.local.report.width import USUAL, beside, reflowed, terminal_width

INDENT, NARROW_INDENT = 26, 18  # where the meaning of a flag begins
NARROW = 80
EXAMPLES = """\
Examples:
  paddock launch train.py                                one rank per device of this machine
  paddock launch --nproc-per-node 4 train.py --lr 0.1    four ranks
  paddock launch --devices 2,3 train.py                  devices 2 and 3
  paddock launch --nnodes 2 train.py                     prints the command for the second node
  paddock launch --nnodes 2:4 --master 10.0.0.1:6768 -m my.train    elastic, on each node
  paddock launch -f job.yaml                             a PaddleJob, on this machine
  paddock launch --server-num 1 --worker-num 2 train.py  parameter server
  paddock explain --nnodes 2 train.py                    what would happen
"""
LAUNCHING = """\
Everything after the script belongs to the script. Flags win over the environment.
- and _ are the same, and a unique beginning of a flag is enough."""
SCRIPT = (Operand("script", "train.py [arguments of train.py]", "", "script"),)
ALL_FLAGS = flag("all", "", "show every flag, not only the common ones")


def _run(args: ParsedCommand) -> int:
    """Print help about a command, or about all."""
    if not args.words:
        sys.stdout.write(overview())
        return 0
    name, *order = args.words
    if name not in NAMES:
        raise UsageError(f"'{name}' is not a command", hint=nearest(name, NAMES, ALL))
    known = commands_of(name)
    full = " ".join((name, *order))
    if order and full not in known:
        orders = [one.partition(" ")[2] for one in known]
        what = f"'{' '.join(order)}' is not an order of paddock {name}"
        raise UsageError(what, hint=nearest(order[0], orders) if any(orders) else f"paddock {name}")
    sys.stdout.write(command_help(full, is_all=args.all))
    return 0


def overview() -> str:
    """The text of ``paddock --help``."""
    width = _width()
    lines = [*reflowed(f"Paddock {__version__} starts, supervises and scales distributed training "
                       "jobs.", width), ""]  # fmt: skip
    lines.append("usage: paddock COMMAND [arguments]")
    for title, commands in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, what in commands.items():
            lines += beside(f"  {name}", what, 14, width)
    lines += ["", *reflowed("Help on a command: paddock COMMAND --help", width), ""]
    lines += _reflowed_text(EXAMPLES, width)
    return "\n".join(lines) + "\n"


def _width() -> int:
    return terminal_width() or USUAL


def _reflowed_text(text: str, width: int) -> Iterator[str]:
    for line in text.rstrip().splitlines():
        yield from reflowed(line, width)


def commands_of(name: str) -> dict[str, CliCommand]:
    """A command's table, or those of its orders."""
    if name in COMMANDS:
        return COMMANDS
    module = __import__(f"paddock.cli.{SHARED.get(name, name)}", fromlist=("COMMANDS",))
    found: dict[str, CliCommand] = module.COMMANDS
    return {full: one for full, one in found.items() if full.partition(" ")[0] == name}


def command_help(name: str, *, is_all: bool = False) -> str:
    """The text of ``paddock NAME --help``; NAME may have an order in it. is_all: --help-all."""
    known = commands_of(name.partition(" ")[0])
    return command_text(known[name], is_all=is_all) if name in known else orders_text(name, known)


def answer(asked: HelpAsked) -> int:
    """Print the help that was asked for."""
    is_all = False
    if asked.args:
        table = commands_of(asked.name)[asked.name].table
        line = read_line(asked.args, table, has_script=True)
        is_all = any(one.flag is HELP_ALL for one in line.flags)
    sys.stdout.write(command_help(asked.name, is_all=is_all))
    return 0


def orders_text(name: str, orders: Mapping[str, CliCommand]) -> str:
    """The help of a command that needs an order."""
    width = _width()
    lines = [f"usage: paddock {name} ORDER [flags]", "", *reflowed(_sentence(NAMES[name]), width)]
    lines += ["", "Orders:"]
    for full, one in orders.items():
        lines += beside("  " + full.partition(" ")[2], one.what, _indent(width), width)
    return "\n".join([*lines, "", f"Flags of each: paddock {name} ORDER --help"]) + "\n"


def command_text(command: CliCommand, *, is_all: bool = False) -> str:
    """The help of a command, or of one order."""
    return "\n".join(_command_lines(command, _width(), is_all=is_all)) + "\n"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _indent(width: int) -> int:
    return INDENT if width >= NARROW else NARROW_INDENT


def _command_lines(command: CliCommand, width: int, *, is_all: bool) -> Iterator[str]:
    usages = [f"paddock {command.name} {usage}" for usage in command.usages]
    for at, usage in enumerate(usages or [usage_of(command)]):
        yield from beside("usage:" if at == 0 else "", usage, 7, width)
    yield ""
    yield from reflowed(_sentence(command.what), width)
    yield from _reflowed_text(command.notes, width)
    operands = [one for one in command.operands if one.help]
    if operands:
        yield ""
    for operand in operands:
        text = operand.help + (f" ({', '.join(operand.choices)})" if operand.choices else "")
        yield from beside(f"  {operand.usage}", text, _indent(width), width)
    yield from _flags_lines(command, width, is_all=is_all)
    if command.examples:
        yield ""
        yield from _reflowed_text(command.examples, width)


def _flags_lines(command: CliCommand, width: int, *, is_all: bool) -> Iterator[str]:
    flags = [*command.flags, *(command.more if is_all else ()), HELP]
    flags = [one for one in {f.name: f for f in flags}.values() if one.status != "hidden"]
    if command.common and not is_all:
        known = {one.name: one for one in flags}
        yield from ("", "Common flags:")
        for name in (*command.common, HELP_ALL.name):
            yield from _flag_lines(known[name], width, known[name].names[:2])
        yield ""
        yield from reflowed(
            f"{len(flags) - len(command.common)} more flags: paddock {command.name} --help-all",
            width,
        )
        return
    for group in dict.fromkeys(one.group for one in flags):
        yield from ("", f"{group}:")
        own = [one for one in flags if one.group == group]
        if all(one.status == "ignored" for one in own):
            yield from beside(" ", " ".join(spelled(one.name) for one in own), 2, width)
            continue
        for one in own:
            yield from _flag_lines(one, width)


def _flag_lines(one: Flag, width: int, names: Sequence[str] = ()) -> Iterator[str]:
    head = "  " + ", ".join(names or one.names) + (f" {one.value}" if one.value else "")
    text = one.help
    if one.choices and one.metavar:
        text += f" ({', '.join(filter(None, one.choices))})"
    if one.env and one.field == "":
        text += f"; else ${', $'.join(one.env)}"
    if one.default not in ("", "None", "False"):
        text += f" [{one.default}]"
    yield from beside(head, text, _indent(width), width)


USAGE = "[flags] train.py [arguments of train.py]"
NOTES = "Flags of launch (paddock help launch) go before the script, too."
MORE = tuple(one for one in FLAGS if one.name != "dry_run")  # submit has its own
# fmt: off
COMMANDS = named(
    CliCommand("launch", NAMES["launch"], FLAGS, operands=SCRIPT, usages=(USAGE,),
               notes=LAUNCHING, examples=EXAMPLES, common=COMMON),
    CliCommand("explain", NAMES["explain"], EXPLAIN, operands=SCRIPT, usages=(
        USAGE, "-b BACKEND|SITE [flags of submit] train.py [arguments]",
        "--kubernetes [flags] job.yaml",
    ), notes=NOTES, more=MORE),
    CliCommand("submit", NAMES["submit"], SUBMIT, operands=SCRIPT, usages=(
        f"[-b BACKEND|SITE] {USAGE}", "[-b BACKEND|SITE] [flags] -f job.yaml",
    ), notes=NOTES, more=MORE),
    CliCommand("help", NAMES["help"], (ALL_FLAGS,), _run,
               (Operand("words", "COMMAND [ORDER]", "about this", "command", least=0, most=2),),
               usages=("[COMMAND [ORDER]] [--all]",)),
    *KUBERNETES.values(),
)
# fmt: on
