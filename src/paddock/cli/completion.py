"""``paddock completion bash|zsh|fish``: a script for the shell, written from the table of flags."""

from __future__ import annotations

from paddock.cli.main import COMMANDS
from paddock.cli.ps import ORDERS
from paddock.cli.warm import ORDERS as WARM
from paddock.errors import UsageError
from paddock.jobfile.flags import FLAGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.jobfile.flags import Flag

SHELLS = ("bash", "zsh", "fish")
INSTALL = {
    "bash": "source <(paddock completion bash)",
    "zsh": "source <(paddock completion zsh)",
    "fish": "paddock completion fish | source",
}
LAUNCHING = ("launch", "explain")


def run(argv: Sequence[str]) -> int:
    """Print the completion script of a shell."""
    if argv and argv[0] in ("-h", "--help"):
        from paddock.cli.help import command_help

        print(command_help("completion"), end="")
        for line in INSTALL.values():
            print(f"  {line}")
        return 0
    if len(argv) != 1 or argv[0] not in SHELLS:
        given = " ".join(argv) or "nothing"
        raise UsageError(f"no completion for '{given}'", hint=f"write one of {', '.join(SHELLS)}")
    print({"bash": bash, "zsh": zsh, "fish": fish}[argv[0]](), end="")
    return 0


def offered() -> list[Flag]:
    """The flags worth offering: not the ignored ones."""
    return [f for f in FLAGS if f.status != "ignored"]


def _names(flag: Flag) -> list[str]:
    names = [f"-{flag.short}"] if flag.short else []
    return names + [f"--{n}" for n in (flag.name, *flag.aliases)]


def _values(flag: Flag) -> tuple[str, ...]:
    return ("1", "0") if flag.kind == "bool" else flag.choices


def bash() -> str:
    """For bash 4 and later; bash-completion is not needed."""
    cases = []
    for flag in offered():
        names = "|".join(_names(flag))
        if _values(flag):
            words = " ".join(_values(flag))
            cases.append(f'    {names}) COMPREPLY=($(compgen -W "{words}" -- "$cur")); return;;')
        elif flag.kind == "dir":
            cases.append(f'    {names}) COMPREPLY=($(compgen -d -- "$cur")); return;;')
        elif flag.kind == "file":
            cases.append(f'    {names}) COMPREPLY=($(compgen -f -- "$cur")); return;;')
        elif flag.kind != "switch":
            cases.append(f"    {names}) return;;")
    flags = " ".join(n for f in offered() for n in _names(f))
    lines = [
        f"# {INSTALL['bash']}",
        "_paddock() {",
        '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"',
        "  COMPREPLY=()",
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f'    COMPREPLY=($(compgen -W "{" ".join(COMMANDS)}" -- "$cur")); return',
        "  fi",
        '  case "${COMP_WORDS[1]}" in',
        f'  completion) COMPREPLY=($(compgen -W "{" ".join(SHELLS)}" -- "$cur")); return;;',
        f'  help) COMPREPLY=($(compgen -W "{" ".join(COMMANDS)}" -- "$cur")); return;;',
        '  ps) if [ "$COMP_CWORD" -eq 2 ]; then',
        f'    COMPREPLY=($(compgen -W "{" ".join(ORDERS)}" -- "$cur"))',
        '    else COMPREPLY=($(compgen -f -- "$cur")); fi; return;;',
        f'  warm) COMPREPLY=($(compgen -W "{" ".join(WARM)}" -- "$cur")); return;;',
        '  version) COMPREPLY=($(compgen -W "--json" -- "$cur")); return;;',
        f"  {'|'.join(LAUNCHING)}) ;;",
        "  *) return;;",
        "  esac",
        '  case "$prev" in',
        *cases,
        "  esac",
        '  case "$cur" in',
        f'  -*) COMPREPLY=($(compgen -W "{flags}" -- "$cur"));;',
        '  *) COMPREPLY=($(compgen -f -- "$cur"));;',
        "  esac",
        "}",
        "complete -o filenames -F _paddock paddock",
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def zsh() -> str:
    """For zsh with compinit."""
    specs: list[str] = []
    for flag in offered():
        what = flag.help.replace("[", "(").replace("]", ")").replace(":", " ")
        action = ""
        if flag.kind != "switch":
            values = _values(flag)
            kind = {"dir": "_files -/", "file": "_files"}.get(flag.kind, " ")
            action = f":{flag.name}:" + (f"({' '.join(values)})" if values else kind)
        specs.extend(f"    {_quoted(f'{name}[{what}]{action}')} \\" for name in _names(flag))
    commands = [f"    {_quoted(f'{name}:{what}')}" for name, what in COMMANDS.items()]
    lines = [
        "#compdef paddock",
        f"# {INSTALL['zsh']}",
        "_paddock() {",
        "  local -a commands=(",
        *commands,
        "  )",
        "  if (( CURRENT == 2 )); then _describe command commands; return; fi",
        "  case $words[2] in",
        f"  completion) compadd {' '.join(SHELLS)}; return;;",
        "  help) _describe command commands; return;;",
        f"  ps) if (( CURRENT == 3 )); then compadd {' '.join(ORDERS)}; else _files; fi; return;;",
        f"  warm) compadd {' '.join(WARM)}; return;;",
        "  version) compadd -- --json; return;;",
        f"  {'|'.join(LAUNCHING)}) ;;",
        "  *) return;;",
        "  esac",
        "  shift words; (( CURRENT-- ))",
        "  _arguments -s \\",
        *specs,
        "    '*:script:_files'",
        "}",
        "compdef _paddock paddock",
    ]
    return "\n".join(lines) + "\n"


def fish() -> str:
    """For fish 3 and later."""
    asked = "__fish_seen_subcommand_from"
    lines = [f"# {INSTALL['fish']}"]
    for name, what in COMMANDS.items():
        lines.append(
            f"complete -c paddock -n __fish_use_subcommand -f -a {name} -d {_quoted(what)}"
        )
    lines.append(f"complete -c paddock -n '{asked} completion' -f -a '{' '.join(SHELLS)}'")
    lines.append(f"complete -c paddock -n '{asked} help' -f -a '{' '.join(COMMANDS)}'")
    lines.append(f"complete -c paddock -n '{asked} ps' -a '{' '.join(ORDERS)}'")
    lines.append(f"complete -c paddock -n '{asked} warm' -f -a '{' '.join(WARM)}'")
    lines.append(f"complete -c paddock -n '{asked} version' -f -l json")
    for flag in offered():
        short = f" -s {flag.short}" if flag.short else ""
        needs = ""
        if flag.kind != "switch":
            values = _values(flag)
            needs = f" -x -a '{' '.join(values)}'" if values else " -x"
            if flag.kind in ("file", "dir"):
                needs = " -r"
        for at, name in enumerate((flag.name, *flag.aliases)):
            lines.append(
                f"complete -c paddock -n '{asked} {' '.join(LAUNCHING)}'"
                f"{short if at == 0 else ''} -l {name}{needs} -d {_quoted(flag.help)}"
            )
    return "\n".join(lines) + "\n"
