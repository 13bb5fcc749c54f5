"""``paddock warm list|forget|stop``: import profiles of scripts, and launcher daemons."""

from __future__ import annotations

import os

from paddock.cli.family import JSON, CliCommand, Operand, ParsedCommand, named
from paddock.errors import UsageError
from paddock.local.report.text import count
from paddock.local.warm.keep import RunningDaemon, all_found
from paddock.local.warm.profile import ImportProfile, all_profiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeVar

    _T = TypeVar("_T", ImportProfile, RunningDaemon)


def _forget(args: ParsedCommand) -> int:
    found = _learned(args.scripts)
    for learned in found:
        os.unlink(learned.path)
    print(f"forgot {count(len(found), 'script')}")
    return 0


def _learned(scripts: Sequence[str]) -> list[ImportProfile]:
    hint = "paddock warm list shows all"
    return _of(all_profiles(os.environ), scripts, "nothing is learned of", hint)


def _list(args: ParsedCommand) -> int:
    scripts = args.scripts
    found = _learned(scripts)
    kept = all_found(os.environ)
    if not scripts:
        known = {learned.script for learned in found}
        for script in sorted({each.script for each in kept} - known):  # kept, and forgotten
            found.append(ImportProfile(""))
            found[-1].script = script
    if args.json:
        import json

        print(json.dumps([_row(learned, kept) for learned in found], indent=2))
        return 0
    for learned in found:
        print("\n".join(_lines(learned, kept)))
    if not found:
        print("nothing is learned yet: paddock launch --warm on SCRIPT")
    return 0


def _of(found: list[_T], scripts: Sequence[str], what: str, hint: str) -> list[_T]:
    """The entries of these scripts, or all. Raises UsageError for a script without an entry."""
    if not scripts:
        return found
    known = {each.script for each in found}
    for script in scripts:
        if known.isdisjoint((script, os.path.realpath(script))):
            raise UsageError(f"{what} '{script}'", hint=hint)
    names = {name for script in scripts for name in (script, os.path.realpath(script))}
    return [each for each in found if each.script in names]


def _stop(args: ParsedCommand) -> int:
    found = _of(all_found(os.environ), args.scripts, "no launcher is kept for", "paddock warm list")
    for each in found:
        each.stop()
    busy = sum(each.state == "busy" for each in found)
    later = f"; {busy} when the job is over" if busy else ""
    print(f"stopped {count(len(found), 'launcher')}{later}")
    return 0


def _row(learned: ImportProfile, kept: Sequence[RunningDaemon]) -> dict[str, object]:
    return {
        "script": learned.script,
        "modules": len(learned.once),
        "late": learned.late,
        "left_out": learned.left_out,
        "file": learned.path,
        "kept": [
            {"pid": each.pid, "state": each.state, "mb": each.megabytes}
            for each in kept
            if each.script == learned.script
        ],
    }


def _lines(learned: ImportProfile, kept: Sequence[RunningDaemon]) -> Iterator[str]:
    yield learned.script
    yield f"  {count(len(learned.once), 'module')} imported once per node"
    if learned.late:
        yield f"  {learned.late}"
    for name, why in learned.left_out.items():
        yield f"  left out {name}: {why}"
    for each in kept:
        if each.script == learned.script:
            yield f"  kept by pid {each.pid}: {each.state}, {each.megabytes} MB"


# fmt: off
SCRIPTS = (Operand("scripts", "SCRIPT", "of these only [all]", "file", (), 0, 0),)
COMMANDS = named(
    CliCommand("warm list", "what is imported once per node, what is left out, and launchers that "
               "are kept", (JSON,), _list, SCRIPTS),
    CliCommand("warm forget", "forget what was learned: the next launch learns it anew", (),
               _forget, SCRIPTS),
    CliCommand("warm stop", "end the launchers that are kept, after their jobs if they have any",
               (), _stop, SCRIPTS),
)
# fmt: on
