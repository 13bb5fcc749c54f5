"""``paddock completion bash|zsh|fish``: a script for the shell, from the tables of the commands.

Those of zsh and fish show what each command and flag does. ``paddock completion jobs`` and
``sites``, which no help shows, print the names that only this machine knows, for those scripts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from paddock.cli.family import CliCommand, Operand, ParsedCommand, named
from paddock.cli.help import commands_of
from paddock.cli.main import COMMANDS as NAMES
from paddock.command_line import Flag

SHELLS = ("bash", "zsh", "fish")
INSTALL = {
    "bash": "source <(paddock completion bash)",
    "zsh": "source <(paddock completion zsh)",
    "fish": "paddock completion fish | source",
}
# How each shell is told of words, of the words that a command prints, a directory, a file, nothing.
# Of bash and zsh $what has one letter for them.
VALUES = {
    "bash": ("what=w words='{}'", 'what=w words="$({})"', "what=d", "what=f", "what=n"),
    "zsh": ("what=w values=({})", 'what=w values=("${{(@f)$({})}}")', "what=d", "what=f", "what=n"),
    "fish": (" -x -a '{}'", " -x -a '({})'", " -r", " -r", " -x"),
}
# Of fish: the word that is typed has one, and with underscores it is completed.
UNDERSCORE = 'string match -q -- "-*_*" (commandline -ct)'
KNOWN = {"job": "jobs", "site": "sites", "discover": "sites"}  # kind or flag -> what is asked for


def _run(args: ParsedCommand) -> int:
    scripts = {"bash": bash, "zsh": zsh, "fish": fish}
    print(scripts.get(args.shell, lambda: _names(args.shell))(), end="")
    return 0


def _names(what: str) -> str:
    """Jobs or sites, one a line; "" if they cannot be read: a completion shows no errors."""
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


def every_command() -> Iterator[CliCommand]:
    """All commands and their subcommands ("orders")."""
    for name in NAMES:
        known = commands_of(name)
        yield from (known[name],) if name in known else known.values()


def offered(command: CliCommand) -> list[Flag]:
    """The flags worth offering: not the ignored ones."""
    return [f for f in command.table.flags if f.status not in ("ignored", "hidden")]


def orders_of(name: str) -> list[str]:
    """The subcommands ("orders") of a command, if it needs one."""
    known = commands_of(name)
    return [] if name in known else [full.partition(" ")[2] for full in known]


def _value(shell: str, kind: str, words: Sequence[str]) -> str:
    """The shell code that completes a value, out of VALUES."""
    some, command, directory, file, nothing = VALUES[shell]
    if words:
        return some.format(" ".join(words))
    if kind in KNOWN:
        return command.format(f"paddock completion {KNOWN[kind]} 2>/dev/null")
    return {"dir": directory, "file": file, "script": file}.get(kind, nothing)


def _walk(shell: str) -> Iterator[tuple[CliCommand, str, list[tuple[Flag, str]]]]:
    """Each command, the completion of its first operand, and its flags with that of values."""
    for command in every_command():
        first = command.operands[0] if command.operands else None
        kind, words = (first.kind, first.choices) if first else ("", ())
        words = tuple(NAMES) if command.name == "help" else words
        yield command, _value(shell, kind, words), [
            (one, "" if one.kind == "switch" else _value(
                shell,
                one.name if one.name in KNOWN else one.kind,
                ("1", "0") if one.kind == "bool" else one.choices,
            ))
            for one in offered(command)
        ]  # fmt: skip


def _cases(shell: str) -> Iterator[str]:
    """The cases of bash and zsh: each command as a case of $at, and of the flag $before."""
    for command, first, flags in _walk(shell):
        names = [(name, one.help) for one, _ in flags for name in one.names]
        shown = f"rows=({_described(names)})"
        if shell == "bash":
            shown = f"flags='{' '.join(name for name, _ in names)}'"
        yield f"  '{command.name}')"
        yield f"    {first}; {shown}"
        yield '    case "$before" in'
        for one, value in flags:
            if value:
                patterns = "|".join(name.replace("-", "_") for name in one.names)
                yield f"    {patterns}) {value} {'flags=' if shell == 'bash' else 'rows=()'};;"
        yield "    esac;;"


def bash() -> str:
    """The completion script for bash 4 and later; bash-completion is not needed."""
    names = [*NAMES]
    with_orders = [
        f"  {name}) order=1; [ $COMP_CWORD -eq 2 ] && at=x what=w words='{' '.join(found)}';;"
        for name in names
        if (found := orders_of(name))
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
        *_cases("bash"),
        "  esac",
        '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        "    case $word in *.py) what=f flags=;; esac  # what follows is the script's",
        "  done",
        '  case "$cur" in -*_*) flags="${flags//-/_}" flags="${flags//__/--}";; esac',
        '  case "$cur" in -*) [ -n "$flags" ] && what=w words="$flags";; esac',
        "  case $what in",
        '  w) COMPREPLY=($(compgen -W "$words" -- "$cur")) || true;;',
        "  d) compopt -o dirnames;;  # readline's own, which knows blanks and quotes",
        "  f) compopt -o default;;",
        "  esac 2>/dev/null || while IFS= read -r word; do  # compopt: in a completion only",
        '    COMPREPLY+=("$word"); done < <(compgen -$what -- "$cur")',
        "}",
        "complete -F _paddock paddock",
    ]
    return "\n".join(lines) + "\n"


def _described(rows: Iterable[tuple[str, str]]) -> str:
    """The elements of an array for zsh's _describe: 'name:what it does'."""
    return " ".join("'" + f"{name}:{what}".replace("'", "'\\''") + "'" for name, what in rows)


def zsh() -> str:
    """The completion script for zsh 5 and later, with descriptions."""
    lines = [
        f"# {INSTALL['zsh']}",
        "(( $+functions[compdef] )) || { autoload -U compinit && compinit }",
        "_paddock() {",
        "  local cur=$words[CURRENT] before=$words[CURRENT-1] at=$words[2] what=n word",
        "  local -a rows values",
        "  if (( CURRENT == 2 )); then",
        f"    rows=({_described(NAMES.items())})",
        "    _describe command rows; return",
        "  fi",
        '  case "$at" in',
    ]
    for name in NAMES:
        if name not in commands_of(name):
            orders = [(f.partition(" ")[2], c.what) for f, c in commands_of(name).items()]
            lines.append(f"  {name}) if (( CURRENT == 3 )); then")
            lines.append(f"      rows=({_described(orders)}); _describe order rows; return; fi")
            lines.append('    at="$at $words[3]";;')
    lines += [
        "  esac",
        "  if [[ $cur == --*=* ]]; then before=${cur%%=*}; compset -P '*='; fi",
        "  before=${before//-/_}",
        '  case "$at" in',
        *_cases("zsh"),
        "  esac",
        "  for word in $words[2,CURRENT-1]; do",
        "    case $word in *.py) _files; return;; esac  # what follows is the script's",
        "  done",
        "  if [[ $cur == -* ]] && (( $#rows )); then _describe -o flag rows -M 'm:_=-'; return; fi",
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
    """The completion script for fish 3 and later."""
    seen, start = "__fish_seen_subcommand_from", "complete -c paddock -n"
    lines = [f"# {INSTALL['fish']}"]
    for name, what in NAMES.items():
        lines.append(f"{start} __fish_use_subcommand -f -a {name} -d {_quoted(what)}")
    for command, first, flags in _walk("fish"):
        name, _, order = command.name.partition(" ")
        at = f"{seen} {name}; and {seen} {order}" if order else f"{seen} {name}"
        if order:
            what = f"-f -a {order} -d {_quoted(command.what)}"
            lines.append(f"{start} '{seen} {name}' {what}")
        if command.operands:
            lines.append(f"{start} '{at}'{first.replace(' -x', ' -f')}")
        for one, value in flags:
            for name in one.names:
                how = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                lines.append(f"{start} '{at}' {how}{value} -d {_quoted(one.help)}")
                if "-" in (bare := name.lstrip("-")):
                    how = f"-l {bare.replace('-', '_')}"
                    lines.append(f"{start} '{at}; and {UNDERSCORE}' {how}{value}")
    return "\n".join(lines) + "\n"


COMMANDS = named(
    CliCommand(
        "completion",
        NAMES["completion"],
        (),
        _run,
        (Operand("shell", "SHELL", "whose script", "text", SHELLS, hidden=("jobs", "sites")),),
        notes="\n".join(INSTALL.values()),
    )
)
