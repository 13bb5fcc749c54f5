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
from pathlib import Path

from paddock.backends.sites.find import find_site
from paddock.backends.sites.keys import keys_of
from paddock.backends.sites.profile import PROJECT_FILE
from paddock.cli.family import CliCommand, ParsedCommand, named, say
from paddock.cli.main import COMMANDS as NAMES
from paddock.command_line import flag
from paddock.core.job import Entrypoint, Job
from paddock.errors import UsageError
from paddock.local.facts.devices import find_devices

Sites = dict[str, dict[str, object]]
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
SSH = ("ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={TRY_SECONDS - 1}")
HEAD = """\
# Where `paddock submit` can run jobs of this project: -b NAME takes a site of this file.
# Keys: docs/reference/sites.md, or paddock help submit. No secrets: a file with one is refused.
# This machine: {}. `paddock launch` and -b local run there, and need no site.

[defaults]
site = {}
"""


def _run(args: ParsedCommand) -> int:
    """Write paddock.toml in this directory. Raises UsageError where one is, without --force."""
    path = Path(PROJECT_FILE).absolute()
    if path.exists() and not args.force:
        raise UsageError(f"{path} is there already", hint="paddock init --force replaces it")
    if not args.yes and not sys.stdin.isatty():
        hint = "paddock init --yes takes the default of each"
        raise UsageError("paddock init asks questions, and there is no terminal", hint=hint)
    ask = (lambda _question, default: default) if args.yes else _asked
    text = make_text(find_sites(os.environ), _machine(), ask)
    _check(text)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
    print(path)
    say("try it: paddock submit --dry-run train.py")
    return 0


def find_sites(env: Mapping[str, str]) -> Sites:
    """Find the sites that answer from here, by name, and say what was tried."""
    found: Sites = {}
    names = ssh_names(Path(env.get("HOME", ""), ".ssh", "config"))
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
    if names:
        silent = ", ".join(name for name in names if name not in hosts)
        say(f"{len(hosts)} of {len(names)} hosts of ~/.ssh/config answer"
            f"{f'; not {silent}' if silent else ''}")  # fmt: skip
    if hosts:
        found["hosts"] = {"backend": "ssh", "hosts": hosts}
    if context:
        say(f"Kubernetes, context {context}: {'answers' if version.result() else 'no answer'}")
    if context and version.result():
        found["cluster"] = {"backend": "kubernetes", "context": context}
    if shutil.which("mpirun"):
        found["mpi"] = {"backend": "mpi", **({"hosts": hosts} if hosts else {})}
        say("mpirun is here")
    if address := env.get("RAY_ADDRESS"):
        found["ray"] = {"backend": "ray", "address": address}
        say(f"Ray: {address}")
    return found


def ssh_names(path: Path) -> list[str]:
    """The hosts that an ssh configuration names, without patterns (ssh_config(5), Host)."""
    try:
        lines = [line.split() for line in path.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return []
    words = [word for line in lines if line and line[0].lower() == "host" for word in line[1:]]
    return list(dict.fromkeys(word for word in words if not set(word) & set("*?!")))[:HOSTS_MAX]


def make_text(found: Sites, machine: str, ask: Callable[[str, str], str]) -> str:
    """The text of a paddock.toml. ask: question, default -> answer; "-" leaves something out."""
    sites: Sites = {}
    for name, options in found.items():
        if not ask(f"write site {name}, yes or no", "yes").lower().startswith("y"):
            continue
        sites[name] = {}
        for key, value in options.items():
            text = ",".join(value) if isinstance(value, list) else str(value)
            answer = text if key == "backend" else ask(f"  its {key}", text)
            if answer != "-":
                sites[name][key] = answer.split(",") if isinstance(value, list) else answer
    first = next(iter(sites), "local")
    default = ask("where jobs run that name no site", first)
    lines = [HEAD.format(machine, json.dumps(default))]
    for name, kept in sites.items():
        lines.append(f"[site.{name}]")
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in kept.items()]
        known = keys_of(str(kept["backend"]))
        more = [key for key in SHOWN.get(str(kept["backend"]), ()) if key not in kept]
        lines += [f"# {key} = ...  # {known[key].help}" for key in more]
        lines.append("")
    return "\n".join(lines)


def _check(text: str) -> None:
    """Read the text as `paddock submit` does. Raises UsageError with every problem of a site."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, PROJECT_FILE).write_text(text, "utf-8")
        names = [line[6:-1] for line in text.splitlines() if line.startswith("[site.")]
        for name in ("", *names):
            find_site(name, env={**os.environ, "XDG_CONFIG_HOME": folder}, cwd=folder)


def _answer(*words: str) -> str | None:
    """Run a program and return its output; None if it is missing, fails or takes too long."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_SECONDS, check=True
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
