"""The Fabric tool of PaddlePaddle 0.10: its conf.py as a site, its arguments as ours. Pure.

Source: cluster_train/paddle.py (v1) and cluster_train_v2/fabric/conf.py, run.sh (v2) of 2017. A
conf.py is read as literals, never executed. What was run on each host: a server on PADDLE_PORT,
then the trainer; every --name=value reached it as PADDLE_INIT_NAME (v2).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from paddock.backends.flags import OWN, TABLE
from paddock.backends.sites.hostfile import hosts_of, parse_hosts
from paddock.backends.sites.keys import secret_problems
from paddock.backends.types import Site
from paddock.command_line import nearest
from paddock.errors import Problem, UsageError, refuse

# Name in conf.py -> key of a site; "init" is a variable PADDLE_INIT_* of the trainers.
NAMES = {
    "HOSTS": "hosts",
    "ROOT_DIR": "root",
    "PADDLE_NIC": "init NICS",
    "PADDLE_PORT": "ports",
    "PADDLE_PORTS_NUM": "init PORTS_NUM",
    "PADDLE_PORTS_NUM_FOR_SPARSE": "init PORTS_NUM_FOR_SPARSE",
    "PADDLE_USE_GPU": "init USE_GPU",
    "LD_LIBRARY_PATH": "env LD_LIBRARY_PATH",
}
PORT = "7164"
SCRIPT = "train.py"
# The tool itself gave these to each trainer.
DECIDED = ("trainer_id", "num_gradient_servers", "pservers", "comment")
TRUE = ("1", "true", "yes", "on")


@dataclass(frozen=True)
class Translation:
    """The old tool's command line in today's flags: submit's, launch's, env, the script, notes."""

    own: tuple[str, ...]
    flags: tuple[str, ...]
    env: dict[str, str]
    script: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The arguments of `paddock submit`."""
        variables = [word for pair in self.env.items() for word in ("--env", "=".join(pair))]
        return [*self.own, *self.flags, *variables, "--", *self.script]


def site_from_conf(text: str, name: str) -> Site:
    """Return the site of a conf.py, named after its first host.

    Raises UsageError with every problem.

    >>> site = site_from_conf("HOSTS = ['me@h1', ('h2', '10.0.0.2')]\\nPADDLE_PORT = 7164", "c.py")
    >>> site.backend, site.name, site.options["hosts"], site.options["ports"]
    ('ssh', 'h1', ('me@h1', 'h2=10.0.0.2'), '7164')
    """
    found, lines, problems = _literals(text, name)
    problems += secret_problems(found, name)
    options: dict[str, object] = {"root": "~"}
    sources: dict[str, str] = {}
    for key, value in found.items():
        kind, _, variable = NAMES[key].partition(" ")
        where = f"{name}, line {lines[key]}: {key}"
        sources[kind] = where
        if kind == "hosts":
            words = value if isinstance(value, (list, tuple)) else [value]
            try:
                options["hosts"] = tuple(str(each) for each in parse_hosts(words, where))
            except UsageError as error:
                problems += error.problems
        elif not isinstance(value, (str, int)):
            problems.append(Problem(f"{where} must be a text or a number, not {value!r}"))
        elif variable:
            table = options.setdefault("paddle_init" if kind == "init" else kind, {})
            assert isinstance(table, dict)
            table[variable] = str(value)
        else:
            options[kind] = str(value)
    if "HOSTS" not in found and not problems:
        problems.append(Problem(f"{name} names no HOSTS", 'write HOSTS = ["user@host"]'))
    refuse(problems)
    hosts = options["hosts"]
    assert isinstance(hosts, tuple)
    return Site(parse_hosts(hosts, name)[0].target, "ssh", options, sources)


def translate(words: Sequence[str], site: Site) -> Translation:
    """Translate a command line of `paddock submit --conf conf.py`, for the site of the conf.py.

    Raises UsageError with every problem. An argument that names a flag exactly is one; every other
    --name=value is the trainer's.

    >>> site = site_from_conf("HOSTS = ['h1', 'h2']", "conf.py")
    >>> found = translate(["--conf", "conf.py", "--num_passes=5", "--use_gpu=0"], site)
    >>> found.own, found.flags
    (('--conf', 'conf.py'), ('--nnodes', '2', '--server_num', '1', '--trainer_num', '1', \
'--start_port', '7164', '--server_script', 'pserver'))
    >>> found.script, found.env
    (('train.py',), {'PADDLE_INIT_NUM_PASSES': '5', 'PADDLE_INIT_USE_GPU': '0'})
    """
    own: list[str] = []
    flags: list[str] = []
    old: dict[str, str] = {}
    notes: list[str] = []
    problems: list[Problem] = []
    given: set[str] = set()
    script = list(words)
    while script and script[0].startswith("-"):
        word = script.pop(0)
        if word == "--":
            break
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        flag = (TABLE.by_name if word.startswith("--") else TABLE.by_short).get(name)
        if flag is not None:
            into = own if flag.key in OWN else flags
            into.append(word)
            given.add(name)
            if not equals and flag.kind not in ("switch", "bool") and script:
                into.append(script.pop(0))
        elif word.startswith("--") and equals and name.isidentifier():
            old[name] = value
        else:
            problems.append(
                Problem(f"'{word}' has no value", f"write --{name}=VALUE, as the old tool read it")
            )
    for name in [name for name in DECIDED if old.pop(name, None) is not None]:
        notes.append(f"--{name} is decided for each host, and not taken from the command line")
    if "config" in old and not script:
        notes.append(f"{old['config']} is not run by itself: {SCRIPT} is, and finds its name in "
                     "PADDLE_INIT_CONFIG")  # fmt: skip
    port = old.pop("port", "") or site.text("ports") or PORT
    if not port.isdigit() or not 0 < int(port[:9]) < 65536:
        problems.append(Problem(f"port '{port}' is not a number in 1..65535"))
    refuse(problems)
    is_local = old.get("local", "0").lower() in TRUE
    if is_local:
        notes.append("--local=1: no servers are started, each trainer trains alone")
    if not given & {"nnodes", "np"}:
        flags += ["--nnodes", str(len(hosts_of(site)))]
    if not is_local and not given & {"servers", "server_num"}:
        flags += ["--server_num", "1", "--trainer_num", "1"]
    if not given & {"start_port", "started_port"}:
        flags += ["--start_port", port]
    if not is_local and "server_script" not in given:
        flags += ["--server_script", "pserver"]
    env = {f"PADDLE_INIT_{name}": str(value) for name, value in site.table("paddle_init").items()}
    env |= {f"PADDLE_INIT_{name.upper()}": value for name, value in old.items()}
    return Translation(tuple(own), tuple(flags), env, tuple(script or [SCRIPT]), tuple(notes))


def _literals(text: str, name: str) -> tuple[dict[str, object], dict[str, int], list[Problem]]:
    """Return the values of a conf.py and their lines; no code in it is executed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f"{name}, line {line}" if line else name
        raise UsageError(f"{where}: {getattr(error, 'msg', error)}") from error
    found: dict[str, object] = {}
    lines: dict[str, int] = {}
    problems: list[Problem] = []
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a text that documents
        where = f"{name}, line {node.lineno}"
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Name):
            what = f"{where}: only NAME = value is read, nothing is executed"
            problems.append(Problem(what, "take this line out, and write values as they are"))
            continue
        if target.id not in NAMES:
            problems.append(
                Problem(f"{where}: {target.id} is not known", nearest(target.id, NAMES))
            )
            continue
        try:
            found[target.id] = ast.literal_eval(node.value)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            what = f"{where}: {target.id} is computed, and a conf.py is not executed"
            example = '["user@host1", "user@host2:2222"]' if target.id == "HOSTS" else '"its value"'
            problems.append(Problem(what, f"write the value itself: {target.id} = {example}"))
        lines[target.id] = node.lineno
    return found, lines, problems
