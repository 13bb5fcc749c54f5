"""The files that define sites, laid over one another: the user's below, the project's above."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddock.backends.sites.keys import BY_NAME, secret_problems
from paddock.backends.table import BACKENDS
from paddock.command_line import nearest
from paddock.errors import Problem, UsageError, refuse

PROJECT_FILE = "paddock.toml"
HOSTS = {"hosts", "hostfile"}
MAX_FILE_BYTES = 1 << 20


@dataclass
class Profile:
    """The merged content of all profile files: tables by site, and the file of each key."""

    sites: dict[str, dict[str, object]] = field(default_factory=dict)
    sources: dict[str, dict[str, str]] = field(default_factory=dict)
    default: str = ""


def read_profile(env: Mapping[str, str], cwd: str) -> Profile:
    """Read the user's file with the project's over it. Raises UsageError with every problem."""
    home = env.get("HOME", "")
    config = env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    paths = [os.path.join(config, "paddock", "sites.toml"), _upwards(cwd)]
    profile, problems = Profile(), list[Problem]()
    for path in paths:
        if path and os.path.exists(path):
            problems += _take(profile, path, env)
    for name, table in profile.sites.items():
        if "backend" not in table and name in BACKENDS:
            table["backend"] = name
        where = f"[site.{name}]"
        if "backend" not in table:
            hint = "write backend = " + " or ".join(f'"{each}"' for each in BACKENDS)
            problems.append(Problem(f"{where} says no backend", hint))
        elif (word := str(table["backend"])) not in BACKENDS:
            hint = nearest(word, BACKENDS)
            problems.append(Problem(f"{where}: there is no backend '{word}'", hint))
    if profile.default and profile.default not in (*profile.sites, *BACKENDS):
        hint = nearest(profile.default, (*profile.sites, *BACKENDS))
        problems.append(Problem(f"[defaults] site: there is no site '{profile.default}'", hint))
    refuse(problems)
    return profile


def _take(profile: Profile, path: str, env: Mapping[str, str]) -> list[Problem]:
    document = _load_toml(path)
    problems = list(secret_problems(document, path))
    for name in document:
        if name not in ("site", "defaults"):
            problems.append(Problem(f"{path}: there is no [{name}]", "write [site.NAME]"))
    defaults = document.get("defaults", {})
    sites = document.get("site", {})
    if not isinstance(defaults, dict) or set(defaults) - {"site"}:
        problems.append(Problem(f"{path}: [defaults] has one key: site"))
    else:
        profile.default = str(defaults.get("site", profile.default))
    if not isinstance(sites, dict) or not all(isinstance(each, dict) for each in sites.values()):
        return [*problems, Problem(f"{path}: sites are tables", "write [site.NAME]")]
    for name, table in sites.items():
        if not name or not all(c.isalnum() or c in "._-" for c in name):
            what = f"{path}: '{name}' is no name of a site"
            problems.append(Problem(what, "use letters, digits, . _ and -"))
        options = profile.sites.setdefault(name, {})
        sources = profile.sources.setdefault(name, {})
        if set(table) >= HOSTS:
            what = f"{path}: [site.{name}] has hosts and hostfile"
            problems.append(Problem(what, "keep one of them"))
        for key, value in table.items():
            where = f"{path}, [site.{name}] {key}"
            put(options, sources, key, value, where, os.path.dirname(path), env)
    return problems


def put(
    options: dict[str, object], sources: dict[str, str], key: str, value: object, where: str,
    folder: str, env: Mapping[str, str],
) -> None:  # fmt: skip
    """Lay an option and its source over those below, with file names made absolute.

    hosts = "FILE" is a hostfile. Of hosts and hostfile the one given above replaces the one below.
    """
    if isinstance(value, str):
        file = _join(folder, value, env)
        if key == "hosts" and not {",", ";"} & set(value) and os.path.isfile(file):
            key = "hostfile"
        if key in BY_NAME and BY_NAME[key].kind == "path":
            value = file
    elif key == "files" and isinstance(value, (list, tuple)):
        value = [_join(folder, each, env) if isinstance(each, str) else each for each in value]
    for other in HOSTS if key in HOSTS else ():
        options.pop(other, None)
    options[key], sources[key] = value, where


def _join(folder: str, name: str, env: Mapping[str, str]) -> str:
    if name == "~" or name.startswith("~/"):
        return os.path.join(env.get("HOME", "~"), name[2:])
    return os.path.normpath(os.path.join(folder, name))


def _load_toml(path: str) -> dict[str, object]:
    for name in ("tomllib", "tomli"):
        try:
            toml = importlib.import_module(name)
        except ImportError:
            continue
        try:
            found: dict[str, object] = toml.loads(read_text(path))
        except toml.TOMLDecodeError as error:
            raise UsageError(f"{path} is not TOML: {error}") from error
        return found
    raise UsageError(
        f"reading {path} needs Python 3.11, or tomli on Python 3.10", hint="pip install tomli"
    )


def read_text(path: str) -> str:
    """Return a file's text. Raises UsageError: it cannot be read, is too large, or is no text."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text: byte {error.start} is not UTF-8") from error


def _upwards(cwd: str) -> str:
    """Return the project's file in this directory or the nearest above it; "" if there is none."""
    for folder in (Path(cwd), *Path(cwd).parents):
        path = folder / PROJECT_FILE
        if path.is_file():
            return str(path)
    return ""
