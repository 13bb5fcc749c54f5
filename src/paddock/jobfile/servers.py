"""The command of a job's parameter servers: the script, Paddock's own server, or another.

Paddle's launcher starts the training script once more for every server (TRAINING_ROLE=PSERVER), and
so do we, but for a script that uses ``paddock.ps`` and never runs a server: as a server it would
wait for itself. A script that serves with ``paddock.ps.fleet`` is Paddock's own server, too.
docs/decisions/0007-who-runs-the-server.md.
"""

from __future__ import annotations

import os

from paddock.core.job import Entrypoint, Servers, ValueSource, make_command
from paddock.core.value import replace
from paddock.jobfile.misplaced import read_script, script_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ast

    from paddock.core.job import Job, Mode
    from paddock.jobfile.args import FieldReader

MAX_RESTARTS = 1000
PACKAGE = "paddock.ps"
FLEET = "paddock.ps.fleet"
# A script that says one of these words looks after its role itself.
SERVER_CALLS = frozenset({"run_server", "init_server", "is_server"})
SERVER_WORDS = frozenset({"TRAINING_ROLE", "PADDLE_ROLE", "PSERVER"})


def read_servers(reader: FieldReader, mode: Mode, command: Entrypoint) -> Servers:
    """--server-script and --server-restarts; no I/O. command: of the job."""
    for name in ("server_script", "server_restarts"):
        # With -f the file will say what roles there are (paddlejob.py).
        if reader.has(name) and mode not in ("ps", "ps-heter") and not reader.has("file"):
            reader.fault(name, f"this job has no servers (--run-mode {mode})",
                         "add --server-num N or --servers")  # fmt: skip
    servers = Servers()
    given = reader.text("server_script", "auto")
    if given == "same":
        servers = replace(servers, is_auto=False)
    elif given != "auto":
        words = _split(given)
        if words:
            servers = chosen(to_command(words, command.python), reader.label("server_script"))
        else:
            reader.fault("server_script", "not a command", "write pserver, same or a script")
    count = reader.integer("server_restarts", 0, MAX_RESTARTS)
    return servers if count is None else replace(servers, max_restarts=count)


def chosen(command: Entrypoint, by: str) -> Servers:
    """The servers of a job that run this command. by: the text that the user wrote."""
    shown = "paddock pserver" if is_pserver(command) else command.program
    return Servers(command, False, is_pserver(command), why=f"servers run {shown} ({by})")


def to_command(words: list[str], python: str) -> Entrypoint:
    """The command of --server-script, split as a shell does; "pserver" is Paddock's own.

    >>> to_command(["pserver", "--ack", "disk"], "py").argv()
    ('py', '-u', '-m', 'paddock', 'pserver', '--ack', 'disk')
    >>> to_command(["serve.py", "7"], "py").argv()
    ('py', '-u', 'serve.py', '7')
    """
    program, *args = words
    if program == "pserver":
        return Entrypoint("module", "paddock", ("pserver", *args), python)
    return make_command(program, tuple(args), python, False, False)


def is_pserver(command: Entrypoint) -> bool:
    """Return True if a command runs Paddock's own server.

    >>> is_pserver(Entrypoint("program", "/usr/bin/paddock", ("pserver", "--ack", "disk")))
    True
    """
    is_paddock = command.kind != "script" and os.path.basename(command.program) == "paddock"
    return is_paddock and command.args[:1] == ("pserver",)


def _split(text: str) -> list[str]:
    """Split a text into arguments as a shell does; none when a quote is not closed."""
    if not any(c in text for c in " \t\"'\\"):
        return [text]
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        return []


# ------------------------------------------------------------------ the script decides


def decide_servers(job: Job) -> Job:
    """Complete the job where --server-script leaves it open: the command, and whose server it is.

    Reads the script that servers run.
    """
    servers = job.servers
    if job.mode != "ps" or servers.is_provided:
        return job
    path = script_path(job.command_of("ps"))
    nodes = syntax_nodes(read_script(path))
    name, sources = os.path.basename(path), job.sources
    if serves_with_fleet(nodes):
        why = (
            f"servers run {name}: it serves with {FLEET}, so each keeps its "
            "state in a log and is started again in place when it dies"
        )
        servers = replace(servers, is_provided=True, ends_itself=True, why=why)
    elif servers.is_auto and only_trains(nodes):
        command = to_command(["pserver"], job.command.python)
        why = (
            f"servers run paddock pserver: {name} uses {PACKAGE} and runs no "
            "server itself (--server-script same would start it as a server)"
        )
        servers = replace(servers, command=command, is_provided=True, why=why)
        sources = {**sources, "servers.command": ValueSource("file", path, PACKAGE)}
    return replace(job, servers=replace(servers, is_auto=False), sources=sources)


def uses_ps(job: Job, folder: str = "") -> bool:
    """Return True if a job may need ``paddock.ps``: its servers, or a script of it in `folder`."""
    if job.mode == "ps" and job.servers.is_provided:
        return True
    if job.command.kind == "module" and job.command.program.startswith("paddock."):
        return True  # ours: the workers of `paddock rec`
    named = {script_path(job.command), script_path(job.command_of("ps"))} - {""}
    paths = [os.path.join(folder, path) for path in named]
    if job.mode == "ps" and not all(map(os.path.exists, paths)):
        return True  # it is on the hosts only: it may
    return any(_uses_package(node) for path in paths for node in syntax_nodes(read_script(path)))


def syntax_nodes(source: bytes) -> list[ast.AST]:
    """The syntax tree's nodes of a script; none if it cannot use Paddock, or cannot be read."""
    if b"paddock" not in source:
        return []  # Paddle's scripts do not pay for a parser
    import ast
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return list(ast.walk(tree))


def only_trains(nodes: list[ast.AST]) -> bool:
    """Return True if a script uses ``paddock.ps`` and shows no sign of running a server itself.

    >>> only_trains(syntax_nodes(b"from paddock import ps\\nclient = ps.Client()"))
    True
    >>> text = b"from paddock.ps import fleet\\nif fleet.is_server(): fleet.run_server()"
    >>> only_trains(syntax_nodes(text))
    False
    >>> only_trains(syntax_nodes(b"# paddock.ps is not used here"))
    False
    """
    return any(map(_uses_package, nodes)) and not any(map(_runs_server, nodes))


def serves_with_fleet(nodes: list[ast.AST]) -> bool:
    """Return True if a script calls run_server, and every fleet it names is Paddock's.

    Errs to no: a server of Paddle's that was started again in place would have lost its tables.

    >>> serves_with_fleet(syntax_nodes(b"from paddock.ps import fleet\\nfleet.run_server()"))
    True
    >>> text = b"import paddock.ps\\nfrom paddle import fleet\\nfleet.run_server()"
    >>> serves_with_fleet(syntax_nodes(text))
    False
    """
    import ast

    packages = {PACKAGE}
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            named = zip(_names(node), node.names, strict=False)
            packages |= {alias.asname or alias.name for name, alias in named if name == PACKAGE}
    whose = set()
    for node in nodes:
        is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        for name in _names(node) if is_import else ():
            if "fleet" in name.split("."):
                whose.add(name == FLEET or name.startswith(f"{FLEET}."))
        if isinstance(node, ast.Attribute) and node.attr == "fleet":
            base = node.value
            dotted = base.id if isinstance(base, ast.Name) else "".join(_names(base))
            whose.add(dotted in packages)
    return whose == {True} and any("run_server" in _words(node) for node in nodes)


def _uses_package(node: ast.AST) -> bool:
    return any(name == PACKAGE or name.startswith(f"{PACKAGE}.") for name in _names(node))


def _runs_server(node: ast.AST) -> bool:
    kind = node.__class__.__name__
    if kind == "Constant":
        return getattr(node, "value", None) in SERVER_WORDS
    for name in _names(node):
        if name.startswith(f"{PACKAGE}.server"):
            return True
    return not SERVER_CALLS.isdisjoint(_words(node))


def _words(node: ast.AST) -> list[str]:
    """The names in a syntax node: the last part of an import, an attribute or a variable."""
    last = getattr(node, "attr", "") or getattr(node, "id", "")
    return [last, *(name.rpartition(".")[2] for name in _names(node))]


def _names(node: ast.AST) -> list[str]:
    """Dotted names that an import, or ``paddock.ps``, brings in."""
    import ast

    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return [f"{node.value.id}.{node.attr}"]
    return []
