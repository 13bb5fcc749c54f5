"""The words of `paddock rec`, which are also those of the worker program. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.errors import Problem, UsageError
from paddock.rec.config.keys import nearest

USAGE = """\
usage: paddock rec -m CONFIG [-b BACKEND] [-r MASTER|WORKER] [-o KEY=VALUE ...]
                   [--evaluate] [--dry-run] [--json]

Train a recommendation model as its config.yaml says: PaddleRec's of any age, or a bundled one.

  -m, --model CONFIG    a config.yaml, the directory of one, or a bundled model:
                        paddlerec.models.rank.dnn
  -b, --backend FILE    backend.yaml, or a site of paddock submit: slurm, ssh,hosts=h1;h2, lab
  -r, --role ROLE       MASTER submits (the default), WORKER trains
  -o KEY=VALUE ...      change a key of the file: runner.epochs=1, engine=local_cluster
      --evaluate        judge what was saved, and train nothing
      --dry-run         show every setting, where it comes from, and the command; start nothing
      --json            with --dry-run: one JSON value on stdout
"""
VALUED = {
    "-m": "model", "--model": "model", "--config_yaml": "model", "-b": "backend",
    "--backend": "backend", "-r": "role", "--role": "role",
}  # fmt: skip
OPTIONS = ("-o", "--opt")
SWITCHES = {
    "--dry-run": "dry_run", "--dry_run": "dry_run", "--evaluate": "evaluate", "--json": "json",
    "-h": "help", "--help": "help",
}  # fmt: skip
ROLES = ("MASTER", "WORKER")


@dataclass(frozen=True)
class Request:
    """What a command line says. options: key and value of each -o, in order."""

    model: str = ""
    backend: str = ""
    role: str = "MASTER"
    options: tuple[tuple[str, str], ...] = ()
    dry_run: bool = False
    evaluate: bool = False
    json: bool = False
    help: bool = False


def read_words(argv: Sequence[str]) -> Request:
    """The request. Raises UsageError with all that is wrong.

    >>> read_words(["-m", "c.yaml", "-o", "runner.epochs=1", "runner.use_gpu=false"]).options
    (('runner.epochs', '1'), ('runner.use_gpu', 'false'))
    """
    said: dict[str, str] = {}
    switches: dict[str, bool] = {}
    options: list[tuple[str, str]] = []
    problems: list[Problem] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if word in SWITCHES:
            switches[SWITCHES[word]] = True
        elif name in VALUED and (equals or words):
            said[VALUED[name]] = value if equals else words.pop(0)
        elif name in OPTIONS:
            pairs = [value] if equals else []
            while words and not equals and not words[0].startswith("-"):
                pairs.append(words.pop(0))
            if not pairs:
                problems.append(Problem("-o names no key", "write -o runner.epochs=1"))
            for pair in pairs:
                key, sign, text = pair.strip().partition("=")
                if sign and all(key.split(".")):
                    options.append((key, text))
                else:
                    problems.append(Problem(f"-o {pair} is not KEY=VALUE", f"write {key}=..."))
        elif name in VALUED:
            problems.append(Problem(f"{word} needs a value", "see paddock rec --help"))
        else:
            known = (*VALUED, *OPTIONS, *SWITCHES)
            hint = nearest(word, known, "see paddock rec --help")
            problems.append(Problem(f"'{word}' is not a word of paddock rec", hint))
    role = said.get("role", "MASTER").upper()
    if role not in ROLES:
        problems.append(Problem(f"-r {said['role']}: there is no such role", "MASTER or WORKER"))
    if not said.get("model") and "help" not in switches and not problems:
        hint = "write paddock rec -m config.yaml, or -m paddlerec.models.rank.dnn"
        problems.append(Problem("no model is given", hint))
    if problems:
        raise UsageError.of(problems)
    return Request(said.get("model", ""), said.get("backend", ""), role, tuple(options), **switches)
