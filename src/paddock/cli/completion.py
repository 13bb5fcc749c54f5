"""``paddock completion bash|zsh|fish``: a script for the shell, from the tables of the commands.

Those of zsh and fish show what each command and flag does. ``paddock completion jobs`` and
``sites``, which no help shows, print the names that only this machine knows, for those scripts.
"""

from __future__ import annotations

import os

from paddock.cli.family import Command, Given, Operand, carry_out
from paddock.cli.help import commands_of
from paddock.cli.main import COMMANDS as NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from paddock.command_line import Flag

SHELLS = ("bash", "zsh", "fish")
INSTALL = {
    "bash": "source <(paddock completion bash)",
    "zsh": "source <(paddock completion zsh)",
    "fish": "paddock completion fish | source",
}
KNOWN = {"job": "jobs", "site": "sites", "discover": "sites"}  # kind or flag -> what is asked for


def run(argv: Sequence[str]) -> int:
    """Print the completion script of a shell."""
    return carry_out("completion", COMMANDS, argv)


def _run(given: Given) -> int:
    scripts = {"bash": bash, "zsh": zsh, "fish": fish}
    print(scripts.get(given.shell, lambda: _names(given.shell))(), end="")
    return 0


def _names(what: str) -> str:
    """Jobs or sites, one a line; nothing where they cannot be read: nobody asked for an error."""
    from paddock.backends.registry import Registry
    from paddock.backends.sites.profile import read_profile
    from paddock.errors import PaddockError

    try:
        if what == "sites":
            names = [*read_profile(os.environ, os.getcwd()).sites]
        else:
            runs = Registry(os.environ).runs()
            names = [name for run in runs for name in (run.run_id, run.name)]
    except (PaddockError, OSError):
        return ""
    return "".join(f"{name}\n" for name in dict.fromkeys(names))


def every_command() -> Iterator[Command]:
    """All commands and orders."""
    for name in NAMES:
        known = commands_of(name)
        yield from (known[name],) if name in known else known.values()


def offered(command: Command) -> list[Flag]:
    """The flags worth offering: not the ignored ones."""
    return [f for f in command.table.flags if f.status not in ("ignored", "hidden")]


def orders_of(name: str) -> list[str]:
    """What comes after the name, if anything must."""
    known = commands_of(name)
    return [] if name in known else [full.partition(" ")[2] for full in known]


def _asked(kind: str, words: Sequence[str]) -> str:
    """What completes a value: "w" and words, "d" directories, "f" files, "n" nothing."""
    if words:
        return f"what=w words='{' '.join(words)}'"
    if kind in KNOWN:
        return f'what=w words="$(paddock completion {KNOWN[kind]} 2>/dev/null)"'
    return f"what={ {'dir': 'd', 'file': 'f', 'script': 'f'}.get(kind, 'n') }"


def bash() -> str:
    """For bash 4 and later; bash-completion is not needed."""
    names, cases = [*NAMES], []
    for command in every_command():
        flags = offered(command)
        operand = command.operands[0] if command.operands else None
        first = _asked(operand.kind, operand.choices) if operand else "what=n"
        if command.name == "help":
            first = f"what=w words='{' '.join(names)}'"
        if "launch" in command.name and flags:
            first = "what=f"
        cases.append(f"  '{command.name}')")
        cases.append(f"    {first}")
        cases.append(f"    flags='{' '.join(n for f in flags for n in f.names)}'")
        cases.append('    case "$before" in')
        for one in flags:
            if one.kind != "switch":
                words = ("1", "0") if one.kind == "bool" else one.choices
                kind = one.name if one.name in KNOWN else one.kind
                patterns = "|".join(name.replace("-", "_") for name in one.names)
                cases.append(f"    {patterns}) {_asked(kind, words)} flags=;;")
        cases += ["    esac;;"]
    orders = {name: orders_of(name) for name in names}
    with_orders = [
        f"  {name}) order=1; [ $COMP_CWORD -eq 2 ] && at=x what=w words='{' '.join(found)}';;"
        for name, found in orders.items()
        if found
    ]
    lines = [
        f"# {INSTALL['bash']}",
        "_paddock() {",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        "  local at=\"${COMP_WORDS[1]}\" what=n words='' flags='' order='' word",
        '  if [ "$cur" = = ]; then cur=; elif [ "$before" = = ]; then',
        '    before="${COMP_WORDS[COMP_CWORD-2]}"; fi',
        '  before="${before//-/_}"',
        "  COMPREPLY=()",
        f"  [ $COMP_CWORD -eq 1 ] && at=x what=w words='{' '.join(names)}'",
        '  case "$at" in',
        *with_orders,
        "  esac",
        '  [ -n "$order" ] && [ "$at" != x ] && at="$at ${COMP_WORDS[2]}"',
        '  case "$at" in',
        *cases,
        "  esac",
        '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        "    case $word in *.py) what=f flags=;; esac  # what follows is the script's",
        "  done",
        '  case "$cur" in -*) [ -n "$flags" ] && what=w words="$flags";; esac',
        "  case $what in",
        '  w) COMPREPLY=($(compgen -W "$words" -- "$cur")) || true;;',
        "  d) compopt -o dirnames;;  # readline's own, which knows blanks and quotes",
        "  f) compopt -o default;;",
        "  esac 2>/dev/null || while IFS= read -r word; do  # zsh has no compopt",
        '    COMPREPLY+=("$word"); done < <(compgen -$what -- "$cur")',
        "}",
        "complete ${ZSH_VERSION:+-o} ${ZSH_VERSION:+filenames} -F _paddock paddock",
    ]
    return "\n".join(lines) + "\n"


def _zsh_described(rows: Iterable[tuple[str, str]]) -> str:
    """The words of an array for _describe: 'name:what it does'."""
    return " ".join("'" + f"{name}:{what}".replace("'", "'\\''") + "'" for name, what in rows)


def _zsh_asked(kind: str, words: Sequence[str]) -> str:
    if words:
        return f"what=w values=({' '.join(words)})"
    if kind in KNOWN:
        return f'what=w values=("${{(@f)$(paddock completion {KNOWN[kind]} 2>/dev/null)}}")'
    return f"what={ {'dir': 'd', 'file': 'f', 'script': 'f'}.get(kind, 'n') }"


def zsh() -> str:
    """For zsh 5 and later, with descriptions."""
    lines = [
        f"# {INSTALL['zsh']}",
        "(( $+functions[compdef] )) || { autoload -U compinit && compinit }",
        "_paddock() {",
        "  local cur=$words[CURRENT] before=$words[CURRENT-1] at=$words[2] what=n word",
        "  local -a rows values",
        "  if (( CURRENT == 2 )); then",
        f"    rows=({_zsh_described(NAMES.items())})",
        "    _describe command rows; return",
        "  fi",
        '  case "$at" in',
    ]
    for name in NAMES:
        orders = [(f.partition(" ")[2], c.what) for f, c in commands_of(name).items() if f != name]
        if name not in commands_of(name) and orders:
            lines.append(f"  {name}) if (( CURRENT == 3 )); then")
            lines.append(f"      rows=({_zsh_described(orders)}); _describe order rows; return; fi")
            lines.append('    at="$at $words[3]";;')
    lines += [
        "  esac",
        "  if [[ $cur == --*=* ]]; then before=${cur%%=*}; compset -P '*='; fi",
        "  before=${before//-/_}",
        '  case "$at" in',
    ]
    for command in every_command():
        operand = command.operands[0] if command.operands else None
        first = _zsh_asked(operand.kind, operand.choices) if operand else "what=n"
        if command.name == "help":
            first = f"what=w values=({' '.join(NAMES)})"
        if "launch" in command.name:
            first = "what=f"
        flags = offered(command)
        described = _zsh_described((name, one.help) for one in flags for name in one.names)
        lines += [f"  '{command.name}')", f"    {first}; rows=({described})"]
        lines.append('    case "$before" in')
        for one in flags:
            if one.kind != "switch":
                words = ("1", "0") if one.kind == "bool" else one.choices
                kind = one.name if one.name in KNOWN else one.kind
                patterns = "|".join(name.replace("-", "_") for name in one.names)
                lines.append(f"    {patterns}) {_zsh_asked(kind, words)} rows=();;")
        lines.append("    esac;;")
    lines += [
        "  esac",
        "  for word in $words[2,CURRENT-1]; do",
        "    case $word in *.py) _files; return;; esac  # what follows is the script's",
        "  done",
        "  if [[ $cur == -* ]] && (( $#rows )); then _describe -o flag rows; return; fi",
        "  case $what in",
        '  w) compadd -- "${values[@]}";;',
        "  d) _files -/;;",
        "  f) _files;;",
        "  esac",
        "}",
        "compdef _paddock paddock",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish() -> str:
    """For fish 3 and later."""
    seen = "__fish_seen_subcommand_from"
    lines = [f"# {INSTALL['fish']}"]
    for name, what in NAMES.items():
        lines.append(
            f"complete -c paddock -n __fish_use_subcommand -f -a {name} -d {_quoted(what)}"
        )
    lines.append(f"complete -c paddock -n '{seen} help' -f -a '{' '.join(NAMES)}'")
    for command in every_command():
        first, _, order = command.name.partition(" ")
        at = f"{seen} {first}; and {seen} {order}" if order else f"{seen} {first}"
        if order:
            what = f"-f -a {order} -d {_quoted(command.what)}"
            lines.append(f"complete -c paddock -n '{seen} {first}' {what}")
        for operand in command.operands[:1]:
            values = _fish_values(operand.kind, operand.choices)
            lines.append(f"complete -c paddock -n '{at}'{values.replace(' -x', ' -f')}")
        for one in offered(command):
            kind = one.name if one.name in KNOWN else one.kind
            values = "" if one.kind == "switch" else _fish_values(kind, one.choices)
            for name in one.names:
                how = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                lines.append(f"complete -c paddock -n '{at}' {how}{values} -d {_quoted(one.help)}")
    return "\n".join(lines) + "\n"


def _fish_values(kind: str, words: Sequence[str]) -> str:
    if words:
        return f" -x -a '{' '.join(words)}'"
    if kind in KNOWN:
        return f" -x -a '(paddock completion {KNOWN[kind]} 2>/dev/null)'"
    return " -r" if kind in ("file", "dir", "script") else " -x"


COMMANDS = {
    "completion": Command(
        "completion",
        "print the completion script of bash, zsh or fish",
        (),
        _run,
        (Operand("shell", "SHELL", "whose script", "text", SHELLS, hidden=("jobs", "sites")),),
        notes="\n".join(INSTALL.values()),
    )
}
