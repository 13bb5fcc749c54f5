"""``paddock warm list|forget``: what ``--warm`` has learned of each script, and leaves out."""

from __future__ import annotations

import os

from paddock.errors import UsageError
from paddock.local.text import count
from paddock.local.warm.learned import Learned, all_learned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ORDERS = ("list", "forget")


def run(argv: Sequence[str]) -> int:
    """Carry out an order; returns the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        from paddock.cli.help import command_help

        print(command_help("warm"), end="")
        print("Shows, or forgets, what earlier runs with --warm on have learned of each script:")
        print("how many modules are imported once per node, and what is left out, and why.")
        return 0
    order, rest = argv[0], list(argv[1:])
    if order not in ORDERS:
        from paddock.jobfile.suggest import nearest

        raise UsageError(
            f"'{order}' is nothing that paddock warm does", hint=nearest(order, ORDERS)
        )
    is_json = order == "list" and "--json" in rest
    scripts = [word for word in rest if not (is_json and word == "--json")]
    for word in scripts:
        if word.startswith("-"):
            raise UsageError(
                f"unexpected '{word}'", hint="write paddock warm list [--json] [SCRIPT]"
            )
    found = _of(scripts)
    if order == "forget":
        for learned in found:
            os.unlink(learned.path)
        print(f"forgot {count(len(found), 'script')}")
        return 0
    if is_json:
        import json

        print(json.dumps([_row(learned) for learned in found], indent=2))
        return 0
    for learned in found:
        print("\n".join(_lines(learned)))
    if not found:
        print("nothing is learned yet: paddock launch --warm on SCRIPT")
    return 0


def _of(scripts: Sequence[str]) -> list[Learned]:
    """What is known of these, or of all."""
    found = all_learned(os.environ)
    if not scripts:
        return found
    names = {name for script in scripts for name in (script, os.path.realpath(script))}
    chosen = [learned for learned in found if learned.script in names]
    known = {learned.script for learned in chosen}
    for script in scripts:
        if known.isdisjoint((script, os.path.realpath(script))):
            raise UsageError(
                f"nothing is learned of '{script}'", hint="paddock warm list shows all"
            )
    return chosen


def _row(learned: Learned) -> dict[str, object]:
    return {
        "script": learned.script,
        "modules": len(learned.names),
        "late": learned.late,
        "left_out": learned.left_out,
        "file": learned.path,
    }


def _lines(learned: Learned) -> Iterator[str]:
    yield learned.script
    yield f"  {count(len(learned.names), 'module')} imported once per node"
    if learned.late:
        yield f"  {learned.late}"
    for name, why in learned.left_out.items():
        yield f"  left out {name}: {why}"
