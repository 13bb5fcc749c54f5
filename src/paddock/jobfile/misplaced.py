"""Flags of the launcher that were typed after the script, which therefore gets them.

Everything after the script belongs to the script, as in torchrun and in Paddle's launcher. A script
that does not know such a flag often ignores it, and the job is smaller than it was meant to be.
Read only where a script's arguments hold such a name.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from paddock.core.job import Entrypoint

# Only names that scripts hardly have themselves: not --devices, --rank, --log-dir, --timeout.
NAMES = frozenset(
    """
    nproc_per_node nnodes node_rank master standalone max_restart max_restarts elastic_level
    elastic_timeout rdzv_backend rdzv_endpoint rdzv_id rdzv_conf server_num worker_num trainer_num
    """.split()  # noqa: SIM905 - a list of quoted names would be four times as long
)
MAX_BYTES = 1 << 20  # of a script that is searched for the name


def misplaced_note(command: Entrypoint) -> tuple[str, ...]:
    """The warning that arguments of a Python script look like flags of the launcher.

    None for a flag whose name stands in the script's text: the script takes it itself.
    """
    text = read_script(script_path(command)).decode("utf-8", "replace")
    if not text:
        return ()
    found = [
        words
        for name, words in _flags(command.args)
        if name.replace("-", "_") not in text and name.replace("_", "-") not in text
    ]
    if not found:
        return ()
    import shlex  # costs 10 ms; only where the line is printed

    names = ", ".join(dict.fromkeys(words[0].partition("=")[0] for words in found))
    script = (["-m"] if command.kind == "module" else []) + [command.program]
    line = shlex.join(["paddock", "launch", *(w for words in found for w in words), *script])
    goes = "goes" if len(found) == 1 else "go"
    return (
        f"{names} {goes} to {command.program}, because everything after the script is for the "
        f"script; for the launcher write: {line} ...",
    )


def _flags(args: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name, the flag's arguments) for each flag that looks like the launcher's."""
    for at, word in enumerate(args):
        name, equals, _ = word[2:].partition("=")
        if not word.startswith("--") or name.replace("-", "_") not in NAMES:
            continue
        value = args[at + 1 : at + 2]
        takes = not equals and name != "standalone" and value and not value[0].startswith("-")
        yield name, (word, *value) if takes else (word,)


def script_path(command: Entrypoint) -> str:
    """The file behind a script or a module below this directory; "" when it is not Python."""
    if command.kind == "script":
        return command.program
    if command.kind == "module":
        base = command.program.replace(".", os.sep)
        for path in (f"{base}.py", os.path.join(base, "__main__.py")):
            if os.path.isfile(path):
                return path
    return ""


def read_script(path: str) -> bytes:
    """The beginning of a script; empty where it cannot be read, which check_machine reports."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES)
    except OSError:
        return b""
