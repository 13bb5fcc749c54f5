"""``paddock help [COMMAND]`` and every ``--help``, written from the table of flags."""

from __future__ import annotations

from paddock import __version__
from paddock.cli.main import COMMANDS, SHARED
from paddock.errors import UsageError
from paddock.jobfile.flags import FLAGS, GROUPS, OLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from paddock.jobfile.flags import Flag

WIDTH = 98
INDENT = 26

USAGES = {
    "launch": "paddock launch [flags] train.py [arguments of train.py]",
    "submit": "paddock submit [-b BACKEND|SITE] [flags] [flags of launch] train.py [arguments]\n"
    "       paddock submit [-b BACKEND|SITE] [flags] -f job.yaml",
    "list": "paddock list [--discover SITE] [--json] [JOB ...]",
    "status": "paddock status [--watch] [--json] [JOB ...]",
    "logs": "paddock logs [-f] [--rank 0,3|all] [--since 5m] [-n 100] [--around-failure 5s] [JOB]",
    "stop": "paddock stop [--now] [--json] JOB ...",
    "wait": "paddock wait [--timeout 1h] [--json] [JOB ...]",
    "fetch": "paddock fetch [--to DIR] [--json] [JOB ...]",
    "delete": "paddock delete [--entry-only] [--json] JOB ...",
    "explain": "paddock explain [--json] [flags of launch] train.py [arguments]\n"
    "       paddock explain --kubernetes [flags] job.yaml",
    "check": "paddock check [--framework paddle|torch|jax] [--json]",
    "pserver": "paddock pserver [--port PORT] [--num_gradient_servers N] [--data-dir DIR] [flags]",
    "ps": "paddock ps status|tables|save|load|export|import|publish|explain|... [flags]",
    "data": "paddock data generate|split|check|plan [flags]",
    "rec": "paddock rec -m CONFIG [-b BACKEND] [-o KEY=VALUE ...] [--evaluate] [--dry-run]",
    "operator": "paddock operator run|install|uninstall|check|crd|manifests [flags]",
    "warm": "paddock warm list [--json] [SCRIPT ...]\n       paddock warm forget|stop [SCRIPT ...]",
    "version": "paddock version [--json]",
    "completion": "paddock completion bash|zsh|fish",
    "help": "paddock help [COMMAND]",
}
WARM = """list    how many modules of each script are imported once per node; what is left out, and
        why; the launchers that --warm keep has left
forget  what was learned of these scripts, or of all: the next launch learns it anew
stop    end the launchers that are kept for them, after their jobs if they have any
"""
# Of the verbs for submitted jobs; --json, which all but logs have, is told once.
DETAILS = {
    "list": ("--discover SITE       find jobs of that site that were submitted elsewhere, too",),
    "status": ("--watch               redraw until the job has ended; exits with its code",),
    "logs": (
        "-f, --follow          go on until the job has ended",
        "--rank 0,3            only these workers",
        "--since 5m            only what is not older",
        "-n, --tail 100        only so many of the last lines",
        "--around-failure 5s   so long before and after the first failure",
    ),
    "stop": ("--now                 without grace",),
    "wait": ("--timeout 1h          exit with 124 if it has not ended by then",),
    "fetch": (
        "--to DIR              where to put them [./ID]; of several hosts in a directory each",
    ),
    "delete": ("--entry-only          forget it here, and leave what is on the hosts",),
}
EXAMPLES = """\
examples:
  paddock launch train.py                                  one process per device of this machine
  paddock launch --nproc_per_node 4 train.py --lr 0.1      four processes
  paddock launch --devices 2,3 train.py                    devices 2 and 3
  paddock launch --nnodes 2 train.py                       prints the command for the second node
  paddock launch --nnodes 2:4 --master 10.0.0.1:6768 -m my.train    elastic, on each node
  paddock launch --server_num 1 --worker_num 2 train.py    parameter server
  paddock launch -f job.yaml                               a PaddleJob, on this machine
  paddock explain --nnodes 2 train.py                      what would happen
"""


def run(argv: Sequence[str]) -> int:
    """Print help about a command, or about all."""
    if not argv or argv[0] in ("-h", "--help"):
        print(overview(), end="")
        return 0
    if argv[0] not in COMMANDS:
        from paddock.jobfile.suggest import nearest

        raise UsageError(f"'{argv[0]}' is not a command", hint=nearest(argv[0], COMMANDS))
    print(command_help(argv[0]), end="")
    return 0


def overview() -> str:
    """What ``paddock --help`` prints."""
    lines = [f"Paddock {__version__}: starts, watches and ends distributed training jobs.", ""]
    lines.append("usage: paddock COMMAND [arguments]")
    lines.append("")
    lines.extend(f"  {name:<12}{what}" for name, what in COMMANDS.items())
    lines += ["", EXAMPLES]
    return "\n".join(lines)


def command_help(name: str) -> str:
    """What ``paddock NAME --help`` prints."""
    usage = f"usage: {USAGES[name]}\n"
    if name == "rec":
        from paddock.rec.config.words import USAGE

        return USAGE
    if name == "submit":
        return usage + "\n".join(_submit_lines()) + "\n"
    if name in SHARED:
        usual = "" if name in ("stop", "delete", "list") else " (the default)"
        lines = [f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}."]
        lines += [f"JOB is a handle, an id, a name, last{usual} or all.", ""]
        lines += [f"  {line}" for line in DETAILS[name]]
        if "--json" in USAGES[name]:
            lines.append("  --json                one JSON value on stdout")
        return usage + "\n".join(lines) + "\n"
    if name == "warm":
        return usage + WARM
    if name not in ("launch", "explain"):
        return usage
    lines = [usage, f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}."]
    lines.append("Flags may be shortened, - and _ are the same; the environment wins over flags")
    lines.append("(--ignore-env). Everything after the script belongs to the script.")
    for group in GROUPS:
        lines += ["", f"{group}:"]
        flags = [f for f in FLAGS if f.group == group]
        if group == OLD:
            lines.extend(_wrapped("  ", " ".join("--" + f.name for f in flags), 2))
            continue
        for flag in flags:
            lines.extend(_flag_lines(flag))
    lines += ["", EXAMPLES]
    return "\n".join(lines)


def _flag_lines(flag: Flag) -> Iterator[str]:
    names = [f"-{flag.short}"] if flag.short else []
    names += [f"--{n}" for n in (flag.name, *flag.aliases)]
    head = "  " + ", ".join(names) + (f" {flag.metavar}" if flag.metavar else "")
    text = flag.help
    if flag.choices:
        text += f" ({', '.join(flag.choices)})"
    if flag.default not in ("", "None", "False"):
        text += f" [{flag.default}]"
    if len(head) >= INDENT:
        yield head
        head = ""
    yield from _wrapped(head, text, INDENT)


def _wrapped(head: str, text: str, indent: int) -> Iterator[str]:
    line = head.ljust(indent)
    is_empty = True
    for word in text.split(" "):
        if not is_empty and len(line) + 1 + len(word) > WIDTH:
            yield line
            line, is_empty = " " * indent, True
        line += word if is_empty else " " + word
        is_empty = False
    yield line


def _submit_lines() -> Iterator[str]:
    """Submit's own flags, from their table."""
    from paddock.backends.flags import FLAGS as OWN

    yield f"{COMMANDS['submit'][0].upper()}{COMMANDS['submit'][1:]}."
    yield "Flags of launch (paddock help launch) go before the script too."
    for group in dict.fromkeys(flag.group for flag in OWN):
        yield ""
        yield f"{group}:"
        for flag in (flag for flag in OWN if flag.group == group):
            names = sorted((flag.name, *flag.aliases), key=len)
            words = ", ".join(f"-{n}" if len(n) == 1 else f"--{n.replace('_', '-')}" for n in names)
            head = f"  {words} {flag.metavar}".rstrip()
            lines = list(_wrapped(" " * INDENT, flag.help, INDENT))
            if len(head) < INDENT - 1:
                yield head.ljust(INDENT) + lines[0].lstrip()
                lines = lines[1:]
            else:
                yield head
            yield from lines
