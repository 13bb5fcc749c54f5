"""``paddock rec``, and ``python -m paddock.rec.run`` with the same words.

The command reads the files, warns of what is odd about them, and trains in this process where one
process is wanted; else `paddock launch` or `paddock submit` takes its place.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import shlex
import stat
import sys
from collections.abc import Callable, Mapping, Sequence

from paddock.errors import EXIT_SIGNAL_BASE, PaddockError, problem_text
from paddock.rec.config import dry_run
from paddock.rec.config.args import read_args
from paddock.rec.config.folder import ResolveContext, find_config
from paddock.rec.config.keys import HIDDEN, is_secret
from paddock.rec.config.resolve import resolve
from paddock.rec.engines import command
from paddock.rec.preflight import preflight
from paddock.rec.settings import EngineKind, Recipe

SIGINT = 2
HANDED_OVER = "PADDOCK_REC_RECIPE"  # a path


def run(argv: Sequence[str], check: Callable[[Sequence[str]], None] | None = None) -> int:
    """Carry out a command line; comes back unless another program takes our place.

    Raises PaddockError.

    check: of the words after `paddock submit`, what that would refuse; for a dry run.
    """
    request = read_args(argv)
    world = ResolveContext(os.getcwd(), os.environ)
    recipe = resolve(request, world)
    chosen = command(recipe, request, find_config(request.model, world), sys.executable)
    if request.dry_run:
        if check is not None and chosen.words[1:4] == ("-m", "paddock", "submit"):
            check(chosen.words[4:])
        words = _masked(chosen.words)
        if request.json:
            found = dry_run.document(recipe, words)
            sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=1) + "\n")
        else:
            sys.stdout.write(dry_run.text(recipe, shlex.join(words)))
        return 0
    odd = [] if request.role == "WORKER" else preflight(recipe)
    for warning in (*recipe.warnings, *odd):
        sys.stderr.write(f"paddock: warning: {warning}\n")
    sys.stderr.flush()
    if chosen.is_here:  # as `python -u -m paddock.rec.worker` would
        for name, value in chosen.env.items():
            os.environ.setdefault(name, value)  # frameworks read them when they are imported
        if not getattr(sys.flags, "safe_path", False) and os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())  # users' files import modules beside them
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        worker = importlib.import_module("paddock.rec.worker")  # numpy and more; others need none
        code: int = worker.train_recipe(recipe)
        return code
    env = {**chosen.env, **os.environ}
    if recipe.engine is EngineKind.LOCAL_CLUSTER:
        env |= _hand_over(recipe, chosen.worker)
    # The program takes our place: its exit code, its signals, its terminal.
    os.execve(chosen.words[0], list(chosen.words), env)


def _hand_over(recipe: Recipe, words: Sequence[str]) -> dict[str, str]:
    """The variable by which workers of this machine find the recipe; see take_over().

    The file has no name, and ends with the launcher that takes our place: it may hold secrets.
    """
    try:
        text = recipe.to_json()
        if not hasattr(os, "memfd_create") or Recipe.from_json(text) != recipe:
            return {}  # workers resolve the same files
    except (TypeError, ValueError):  # a date of YAML, an empty name of the job
        return {}
    descriptor = os.memfd_create("recipe")
    os.fchmod(descriptor, 0o600)
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8") as file:
        json.dump({"words": list(words), "recipe": text}, file)
    os.set_inheritable(descriptor, True)
    return {HANDED_OVER: f"/proc/{os.getpid()}/fd/{descriptor}"}


def take_over(words: Sequence[str], env: Mapping[str, str]) -> Recipe | None:
    """The recipe that `paddock rec` resolved for a worker of these words; None: there is none.

    A script of a worker that starts another training has the variable, and other words.
    """
    path = env.get(HANDED_OVER, "")
    try:
        if not path or not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except OSError:  # the launcher runs on another machine, or keeps no files of others open
        return None
    return Recipe.from_json(found["recipe"]) if found["words"] == list(words) else None


def _masked(words: Sequence[str]) -> list[str]:
    """The command as it may be shown: values of -o whose keys look secret are not."""
    found = []
    for word in words:
        key, sign, _ = word.partition("=")
        is_hidden = bool(sign) and is_secret(key) and not key.startswith("-")
        found.append(f"{key}={HIDDEN}" if is_hidden else word)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """The same as a program: errors become lines and exit codes."""
    try:
        return run(sys.argv[1:] if argv is None else argv)
    except PaddockError as error:
        sys.stderr.write(problem_text(error))
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_SIGNAL_BASE + SIGINT


if __name__ == "__main__":
    sys.exit(main())
