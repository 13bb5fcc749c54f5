"""The words of `paddock rec`, which are also those of the worker program. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.command_line import FlagTable, flag, read_line
from paddock.errors import Problem, UsageError

# fmt: off
TABLE = FlagTable("rec", (
    flag("model", "CONFIG", "a config.yaml, the directory of one, or a bundled model: "
         "paddlerec.models.rank.dnn", "m", aliases=("config_yaml",)),
    flag("backend", "FILE", "backend.yaml, or a site of paddock submit: slurm, ssh,hosts=h1;h2, "
         "lab", "b"),
    flag("role", "MASTER|WORKER", "MASTER submits, WORKER trains", "r", default="MASTER"),
    flag("opt", "KEY=VALUE", "change keys of the file: runner.epochs=1 engine=local_cluster", "o",
         repeats=True, is_greedy=True),
    flag("name", "NAME", "name of the job; one that is in use is refused"),
    flag("replace", "", "stop the job that has the name first"),
    flag("evaluate", "", "judge what was saved, and train nothing"),
    flag("dry-run", "", "show every setting, where it comes from, and the command; start nothing"),
    flag("json", "", "with --dry-run: one JSON value on stdout"),
))
# fmt: on
ROLES = ("MASTER", "WORKER")


@dataclass(frozen=True)
class RecArgs:
    """The arguments of `paddock rec`. options: key and value of each -o, in order."""

    model: str = ""
    backend: str = ""
    role: str = "MASTER"
    options: tuple[tuple[str, str], ...] = ()
    dry_run: bool = False
    evaluate: bool = False
    json: bool = False
    name: str = ""
    replace: bool = False


def read_args(argv: Sequence[str]) -> RecArgs:
    """The request. Raises UsageError with all that is wrong.

    >>> read_args(["-m", "c.yaml", "-o", "runner.epochs=1", "runner.use_gpu=false"]).options
    (('runner.epochs', '1'), ('runner.use_gpu', 'false'))
    """
    line = read_line(argv, TABLE)
    said, problems = line.texts(), line.problems
    options: list[tuple[str, str]] = []
    for pair in [one.text for one in line.flags if one.flag.name == "opt"]:
        key, sign, text = pair.strip().partition("=")
        if sign and all(key.split(".")):
            options.append((key, text))
        else:
            problems.append(Problem(f"-o {pair} is not KEY=VALUE", f"write {key}=..."))
    hint = "flags only; see paddock rec --help"
    problems += [Problem(f"'{word}' is not expected here", hint) for word in line.rest]
    role = said.get("role", "MASTER").upper()
    if role not in ROLES:
        problems.append(Problem(f"-r {said['role']}: there is no such role", "MASTER or WORKER"))
    if not said.get("model") and not problems:
        hint = "write paddock rec -m config.yaml, or -m paddlerec.models.rank.dnn"
        problems.append(Problem("no model is given", hint))
    if problems:
        raise UsageError.of(problems)
    names = ("dry_run", "evaluate", "json", "replace")
    switches = {name: said.get(name) == "1" for name in names}
    where, name = said.get("backend", ""), said.get("name", "")
    return RecArgs(said["model"], where, role, tuple(options), name=name, **switches)
