"""``paddock init``: look at where jobs can run from here, ask, and write a commented paddock.toml.

Nothing is changed anywhere else. Hosts are tried without a question (BatchMode), all at once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path
from typing import TypeVar

from paddock.backends.sites.find import find_site
from paddock.backends.sites.keys import keys_of
from paddock.backends.sites.profile import PROJECT_FILE
from paddock.backends.types import split_list
from paddock.cli.family import CliCommand, ParsedCommand, named
from paddock.cli.main import COMMANDS as NAMES
from paddock.command_line import flag
from paddock.core.job import Entrypoint, Job
from paddock.errors import UsageError, problem_text
from paddock.local.facts.devices import find_devices
from paddock.local.report.width import say

Sites = dict[str, dict[str, object]]
Ask = Callable[[str, str], str]  # question, default -> answer; "-" leaves something out
Answer = TypeVar("Answer")
TRY_SECONDS = 4
HOSTS_MAX = 64  # of ~/.ssh/config, that are tried
# Keys that each site shows as comments, for whoever needs them.
SHOWN = {
    "ssh": ("interpreter", "root", "workspace", "env"),
    "slurm": ("account", "time", "gres", "interpreter"),
    "mpi": ("hostfile", "mpirun_args", "interpreter"),
    "ray": ("gpus", "cpus", "placement"),
    "kubernetes": ("image", "namespace", "gpus", "volumes"),
}
SSH = ("ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={TRY_SECONDS - 1}",
       "-o", "ClearAllForwardings=yes", "--")  # fmt: skip
HEAD = """\
# Where `paddock submit` can run jobs of this project: -b NAME takes a site of this file.
# Keys: docs/reference/sites.md, or paddock help submit. No secrets: a file with one is refused.
# This machine: {}. `paddock launch` and -b local run there, and need no site.

[defaults]
{}
"""


def _run(args: ParsedCommand) -> int:
    """Write paddock.toml in this directory. Raises UsageError where one is, without --force."""
    path = Path(PROJECT_FILE).absolute()
    if path.exists() and not args.force:
        raise UsageError(f"{path} is there already", hint="paddock init --force replaces it")
    if not args.yes and not sys.stdin.isatty():
        hint = "paddock init --yes takes the default of each"
        raise UsageError("paddock init asks questions, and there is no terminal", hint=hint)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"cannot write {path}: no permission", hint="go to another directory")
    _check(make_text({}, "", "local"))  # a wrong file of the user's is told before questions
    sites = find_sites(os.environ)
    default = next(iter(sites), "local")
    if not args.yes:
        sites, default = choose(sites, _asked)
    text = make_text(sites, _machine(), default)
    _check(text)
    try:
        with path.open("w" if args.force else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    print(path)
    say("try it: paddock submit --dry-run train.py")
    return 0


def find_sites(env: Mapping[str, str]) -> Sites:
    """Find the sites that answer from here, by name, and say what was tried.

    The value of a key that a site needs and nobody but the user knows is "".
    """
    found: Sites = {}
    every = ssh_names(Path(env.get("HOME", ""), ".ssh", "config"))
    names = every[:HOSTS_MAX]
    with ThreadPoolExecutor(HOSTS_MAX + 2) as pool:
        asked = [pool.submit(_answer, *SSH, name, "true") for name in names]
        sinfo = pool.submit(_answer, "sinfo", "-h", "-o", "%P")
        version = pool.submit(_answer, "kubectl", "get", "--raw", "/version")
        context = _answer("kubectl", "config", "current-context")
    hosts = [name for name, each in zip(names, asked, strict=True) if each.result() is not None]
    partitions = sinfo.result()
    if shutil.which("sbatch") and partitions:
        words = sorted(partitions.split(), key=lambda word: not word.endswith("*"))
        found["slurm"] = {"backend": "slurm", "partition": words[0].rstrip("*")}
        say(f"Slurm is here; partitions: {' '.join(words)}")
    if len(every) > HOSTS_MAX:
        say(f"~/.ssh/config names {len(every)} hosts; the first {HOSTS_MAX} are tried")
    if names:
        silent = ", ".join(name for name in names if name not in hosts)
        say(f"{len(hosts)} of {len(names)} hosts of ~/.ssh/config answer"
            f"{f'; not {silent}' if silent else ''}")  # fmt: skip
    if hosts:
        found["hosts"] = {"backend": "ssh", "hosts": hosts}
    if context:
        say(f"Kubernetes, context {context}: {'answers' if version.result() else 'no answer'}")
    if context and version.result():
        found["cluster"] = {"backend": "kubernetes", "context": context, "image": ""}
    if shutil.which("mpirun"):
        found["mpi"] = {"backend": "mpi", **({"hosts": hosts} if hosts else {})}
        say("mpirun is here")
    if address := env.get("RAY_ADDRESS"):
        found["ray"] = {"backend": "ray", "address": address}
        say(f"Ray: {address}")
    return found


def ssh_names(path: Path) -> list[str]:
    """The hosts that an ssh configuration and its includes name, without patterns.

    Source: ssh_config(5), Host and Include; names of files are relative to the first one.
    """
    found: list[str] = []
    files = [str(path)]
    for file in files:  # which grows
        try:
            lines = Path(file).read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        for line in lines:
            text = line.partition(" #")[0].replace("=", " ", 1).replace('"', " ")
            key, *words = text.split() or [""]
            if key.lower() == "host":
                found += [word for word in words if not set(word) & set("*?!")]
            elif key.lower() == "include":
                wanted = [path.parent / os.path.expanduser(word) for word in words]
                files += [each for name in wanted for each in sorted(glob(str(name)))]
                files[:] = dict.fromkeys(files)
    return list(dict.fromkeys(found))


def choose(found: Sites, ask: Ask) -> tuple[Sites, str]:
    """The sites to write and the default one, as asked. A wrong answer is asked for again."""
    sites: Sites = {}
    for name, options in found.items():
        if _until_right(_is_wanted, name, ask):
            sites[name] = _until_right(_asked_site, name, options, ask)
    return sites, _until_right(_asked_default, sites, ask)


def _until_right(answer: Callable[..., Answer], *args: object) -> Answer:
    while True:
        try:
            return answer(*args)
        except UsageError as error:
            sys.stderr.write(problem_text(error))


def _is_wanted(name: str, ask: Ask) -> bool:
    word = ask(f"write site {name}, yes or no", "yes").lower()
    if not word or (not "yes".startswith(word) and not "no".startswith(word)):
        raise UsageError(f"'{word}' is neither yes nor no")
    return "yes".startswith(word)


def _asked_site(name: str, options: Mapping[str, object], ask: Ask) -> dict[str, object]:
    kept: dict[str, object] = {}
    for key, value in options.items():
        is_list = isinstance(value, list)
        text = ",".join(value) if isinstance(value, list) else str(value) or "-"
        answer = text if key == "backend" else ask(f"  its {key}", text)
        if answer != "-":
            kept[key] = [*split_list(answer)] if is_list else answer
    _check(make_text({name: kept}, "", "-"))
    return kept


def _asked_default(sites: Sites, ask: Ask) -> str:
    answer = ask("where jobs run that name no site", next(iter(sites), "local"))
    _check(make_text(sites, "", answer))
    return answer


def make_text(sites: Sites, machine: str, default: str) -> str:
    """The text of a paddock.toml. default: the site of jobs that name none; "-" for no such."""
    site = f"site = {json.dumps(default, ensure_ascii=False)}"
    lines = [HEAD.format(machine, "# site = ..." if default == "-" else site)]
    for name, kept in sites.items():
        lines.append(f"[site.{name}]")
        values = {key: value for key, value in kept.items() if value}
        lines += [f"{key} = {json.dumps(each, ensure_ascii=False)}" for key, each in values.items()]
        known = keys_of(str(kept["backend"]))
        more = [key for key in SHOWN.get(str(kept["backend"]), ()) if key not in values]
        lines += [f"# {key} = ...  # {known[key].help}" for key in more]
        lines.append("")
    return "\n".join(lines)


def _check(text: str) -> None:
    """Read the text as `paddock submit` does. Raises UsageError with every problem of a site."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, PROJECT_FILE).write_text(text, "utf-8")
        lines = text.splitlines()
        names = [line[6:-1] for line in lines if line.startswith("[site.")]
        has_default = any(line.startswith("site = ") for line in lines)
        for name in (*names, *([""] if has_default else [])):
            find_site(name, env=os.environ, cwd=folder)


def _answer(*words: str) -> str | None:
    """Run a program and return its output; None if it is missing, fails or takes too long."""
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # which a connection that ssh keeps open may hold
            timeout=TRY_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()


def _machine() -> str:
    try:
        found = find_devices(Job(Entrypoint("program", "")), os.environ)
    except UsageError:  # a variable of the user's names devices that are not there
        return "cpu"
    return f"{found.count} x {found.kind}" if found.labels else "cpu"


def _asked(question: str, default: str) -> str:
    sys.stderr.write(f"{question} [{default}]: ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise KeyboardInterrupt  # Ctrl-D: nothing is written
    return line.strip() or default


COMMANDS = named(
    CliCommand(
        "init", NAMES["init"],
        (flag("yes", "", "ask nothing: take the default of each question", "y"),
         flag("force", "", "replace a paddock.toml that is there")),
        _run,
        notes="Enter takes the default of a question, - leaves that key out.",
    )
)  # fmt: skip
