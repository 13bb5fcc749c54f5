"""``paddock help [COMMAND [ORDER]]`` and every ``--help``, from the tables of the commands."""

from __future__ import annotations

import sys

from paddock import __version__
from paddock.cli.family import Command, Given, Operand, carry_out, usage_of
from paddock.cli.main import ALL, SHARED
from paddock.cli.main import COMMANDS as NAMES
from paddock.command_line import HELP, nearest
from paddock.errors import UsageError
from paddock.jobfile.flags import FLAGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from paddock.command_line import Flag

WIDTH = 98
INDENT = 26
EXAMPLES = """\
Examples:
  paddock launch train.py                                  one process per device of this machine
  paddock launch --nproc_per_node 4 train.py --lr 0.1      four processes
  paddock launch --devices 2,3 train.py                    devices 2 and 3
  paddock launch --nnodes 2 train.py                       prints the command for the second node
  paddock launch --nnodes 2:4 --master 10.0.0.1:6768 -m my.train    elastic, on each node
  paddock launch --server_num 1 --worker_num 2 train.py    parameter server
  paddock launch -f job.yaml                               a PaddleJob, on this machine
  paddock explain --nnodes 2 train.py                      what would happen
"""


LAUNCHING = """\
Flags may be shortened, - and _ are the same. Flags win over the environment.
Everything after the script belongs to the script."""
SCRIPT = (Operand("script", "train.py [arguments of train.py]", "", "script"),)


def run(argv: Sequence[str]) -> int:
    """Print help about a command, or about all."""
    if argv:
        return carry_out("help", COMMANDS, argv)
    sys.stdout.write(overview())
    return 0


def _run(given: Given) -> int:
    name, *order = given.words
    if name not in NAMES:
        raise UsageError(f"'{name}' is not a command", hint=nearest(name, NAMES, ALL))
    known = commands_of(name)
    full = " ".join((name, *order))
    if order and full not in known:
        orders = [one.partition(" ")[2] for one in known]
        what = f"'{' '.join(order)}' is not an order of paddock {name}"
        raise UsageError(what, hint=nearest(order[0], orders) if any(orders) else f"paddock {name}")
    sys.stdout.write(command_help(full))
    return 0


def overview() -> str:
    """What ``paddock --help`` prints."""
    lines = [f"Paddock {__version__}: starts, watches and ends distributed training jobs.", ""]
    lines.append("usage: paddock COMMAND [arguments]")
    lines.append("")
    lines.extend(f"  {name:<12}{what}" for name, what in NAMES.items())
    lines += ["", EXAMPLES]
    return "\n".join(lines)


def commands_of(name: str) -> dict[str, Command]:
    """A command's table, or those of its orders."""
    if name in COMMANDS:
        return COMMANDS
    module = __import__(f"paddock.cli.{SHARED.get(name, name)}", fromlist=("COMMANDS",))
    found: dict[str, Command] = module.COMMANDS
    return {full: one for full, one in found.items() if full.partition(" ")[0] == name}


def command_help(name: str) -> str:
    """What ``paddock NAME --help`` prints; NAME may have an order in it."""
    known = commands_of(name.partition(" ")[0])
    return command_text(known[name]) if name in known else orders_text(name, known)


def orders_text(name: str, orders: Mapping[str, Command]) -> str:
    """The help of a command that needs an order."""
    lines = [f"usage: paddock {name} ORDER [flags]", "", _sentence(NAMES[name]), "", "Orders:"]
    for full, one in orders.items():
        lines.extend(_wrapped("  " + full.partition(" ")[2], one.what, INDENT))
    return "\n".join([*lines, "", f"Flags of each: paddock {name} ORDER --help"]) + "\n"


def command_text(command: Command) -> str:
    """The help of a command, or of one order."""
    return "\n".join(_command_lines(command)) + "\n"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _command_lines(command: Command) -> Iterator[str]:
    usages = [f"paddock {command.name} {usage}" for usage in command.usages]
    for at, usage in enumerate(usages or [usage_of(command)]):
        yield from _wrapped("usage:" if at == 0 else "", usage, 7)
    yield ""
    yield from _wrapped("", _sentence(command.what), 0)
    if command.notes:
        yield command.notes
    operands = [one for one in command.operands if one.help]
    if operands:
        yield ""
    for operand in operands:
        text = operand.help + (f" ({', '.join(operand.choices)})" if operand.choices else "")
        yield from _wrapped(f"  {operand.usage}", text, INDENT)
    flags = [*command.flags, HELP]
    flags = [one for one in {f.name: f for f in flags}.values() if one.status != "hidden"]
    for group in dict.fromkeys(one.group for one in flags):
        yield from ("", f"{group}:")
        own = [one for one in flags if one.group == group]
        if all(one.status == "ignored" for one in own):
            yield from _wrapped(" ", " ".join("--" + one.name for one in own), 2)
            continue
        for one in own:
            yield from _flag_lines(one)
    if command.examples:
        yield from ("", command.examples.rstrip())


def _flag_lines(one: Flag) -> Iterator[str]:
    head = "  " + ", ".join(one.names) + (f" {one.value}" if one.value else "")
    text = one.help
    if one.choices and one.metavar:
        text += f" ({', '.join(filter(None, one.choices))})"
    if one.env and one.field == "":
        text += f"; else ${', $'.join(one.env)}"
    if one.default not in ("", "None", "False"):
        text += f" [{one.default}]"
    yield from _wrapped(head, text, INDENT)


def _wrapped(head: str, text: str, indent: int) -> Iterator[str]:
    """Text beside its head; below it where the head is long."""
    line = head.ljust(indent)
    if len(line) > indent or (head == line and head):
        yield head
        line = " " * indent
    is_empty = True
    for word in text.split(" "):
        if not is_empty and len(line) + 1 + len(word) > WIDTH:
            yield line
            line, is_empty = " " * indent, True
        line += word if is_empty else " " + word
        is_empty = False
    yield line.rstrip()


def _launching() -> Iterator[Command]:
    from paddock.backends.flags import FLAGS as SUBMIT
    from paddock.cli.explain import FLAGS as EXPLAIN

    usage = "[flags] train.py [arguments of train.py]"
    notes = "Flags of launch (paddock help launch) go before the script, too."
    yield Command("launch", NAMES["launch"], FLAGS, operands=SCRIPT, usages=(usage,),
                  notes=LAUNCHING, examples=EXAMPLES)  # fmt: skip
    where = "-b BACKEND|SITE [flags of submit] train.py [arguments]"
    usages: tuple[str, ...] = (usage, where, "--kubernetes [flags] job.yaml")
    yield Command("explain", NAMES["explain"], EXPLAIN, operands=SCRIPT, usages=usages, notes=notes,
                  more=FLAGS)  # fmt: skip
    usages = (f"[-b BACKEND|SITE] {usage}", "[-b BACKEND|SITE] [flags] -f job.yaml")
    yield Command("submit", NAMES["submit"], SUBMIT, operands=SCRIPT, usages=usages, notes=notes,
                  more=FLAGS)  # fmt: skip
    operand = Operand("words", "COMMAND [ORDER]", "about this", "command", least=0, most=2)
    yield Command("help", NAMES["help"], (), _run, (operand,), usages=("[COMMAND [ORDER]]",))


COMMANDS = {command.name: command for command in _launching()}
