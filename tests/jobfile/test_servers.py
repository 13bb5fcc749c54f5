"""What the servers of a job run: --server-script, a PaddleJob, and the rule for scripts."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from jobfile.reading import PYTHON, job, parsed, problems
from paddock.core.job import Entrypoint, Servers
from paddock.errors import UsageError
from paddock.jobfile.dialects.paddlejob import job_from_document
from paddock.jobfile.parse import parse
from paddock.jobfile.servers import (
    decide_servers,
    is_pserver,
    only_trains,
    serves_with_fleet,
    syntax_nodes,
    to_command,
)

if TYPE_CHECKING:
    from pathlib import Path

PSERVER = Entrypoint("module", "paddock", ("pserver",), PYTHON)
PS = "--server-num 2 --worker-num 2"


def pod(*words: str) -> dict[str, Any]:
    """A role of a PaddleJob whose container runs these words."""
    container = {"name": "c", "image": "i", "command": list(words)}
    return {"replicas": 2, "template": {"spec": {"containers": [container]}}}


def of_file(worker: dict[str, Any], ps: dict[str, Any], line: str = "-f j") -> Servers:
    """The servers of a PaddleJob with these roles."""
    document = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": "j"},
        "spec": {"worker": worker, "ps": ps},
    }
    return job_from_document(copy.deepcopy(document), parsed(line))[0].servers


def test_without_the_flag_the_script_decides() -> None:
    """Nothing is read here: parsing does no I/O."""
    assert job(f"{PS} train.py").servers == Servers()
    assert job(f"{PS} train.py").command_of("ps") == job(f"{PS} train.py").command


@pytest.mark.parametrize(
    ("text", "command", "is_provided"),
    [
        ("pserver", PSERVER, True),
        ("serve.py", Entrypoint("script", "serve.py", (), PYTHON), False),
        ("./serve.sh", Entrypoint("program", "./serve.sh", (), PYTHON), False),
        ("paddock", Entrypoint("program", "paddock", (), PYTHON), False),
    ],
)
def test_a_word_says_what_servers_run(text: str, command: Entrypoint, is_provided: bool) -> None:
    """Paddock's own server by its name, or any script or program."""
    found = job(f"{PS} --server-script {text} train.py")
    assert found.servers.command == command
    assert (found.servers.is_provided, found.servers.is_auto) == (is_provided, False)
    assert found.command_of("ps") == command
    assert found.command_of("worker").program == "train.py"
    assert f"--server-script {text}" in found.servers.why


def test_words_of_the_flag_are_cut_as_in_a_shell() -> None:
    """Flags for the server stand behind it."""
    words = [*PS.split(), "--server-script", "pserver --data-dir '/a b' --ack disk", "t.py"]
    found = parse(words, {}, python=PYTHON).job.servers
    assert found.command is not None
    assert found.command.args == ("pserver", "--data-dir", "/a b", "--ack", "disk")
    assert found.is_provided


def test_same_keeps_the_script_for_servers() -> None:
    """Paddle's rule, for a script that the other rule would take for a trainer."""
    found = job(f"{PS} --server-script same train.py").servers
    assert (found.command, found.is_auto, found.is_provided) == (None, False, False)


def test_restarts_of_servers_are_read() -> None:
    """0 switches them off; where they came from is known."""
    found = job(f"{PS} --server-restarts 0 train.py")
    assert found.servers.max_restarts == 0
    assert found.sources["servers.max_restarts"].name == "--server-restarts"
    assert job(f"{PS} train.py").servers.max_restarts == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--server-script pserver a.py", "this job has no servers (--run-mode collective)"),
        ("--run-mode rpc --server-restarts 1 a.py", "this job has no servers (--run-mode rpc)"),
        (f"{PS} --server-script 'x a.py", "not a command"),
        (f"{PS} --server-restarts -1 a.py", "not in 0..1000"),
        (f"{PS} --server-restarts many a.py", "not a whole number"),
    ],
)
def test_a_wrong_word_is_one_clear_problem(line: str, message: str) -> None:
    """Nothing is guessed."""
    (found,) = problems(line)
    assert message in found.message


# ------------------------------------------------------------------- the script decides


@pytest.mark.parametrize(
    "text",
    [
        "from paddock import ps\nclient = ps.Client()",
        "import paddock.ps as p\np.Client()",
        "import paddock\npaddock.ps.Client()",
        "from paddock.ps import Client, fleet",
        "from paddock.ps.client import Client",
        "import paddock.ps.torch",
        "def main():\n    from paddock.ps import paddle as pp\n",
        '"""Talks to servers; see run_server and TRAINING_ROLE in the docs."""\nimport paddock.ps',
        "# coding: latin-1\nimport paddock.ps\nname = '\xe9'",
        "import paddock.ps\npattern = '\\d'",
    ],
)
def test_a_script_that_only_trains_needs_a_server(text: str) -> None:
    """It uses paddock.ps and has no part for the servers."""
    assert only_trains(syntax_nodes(text.encode("latin-1")))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import paddle.distributed.fleet as fleet\nfleet.init()",
        "# paddock.ps\nprint('paddock.ps')",
        "from paddock import __version__",
        "from paddock.psx import y",
        "from . import paddock",
        "from paddock.ps import fleet\nif fleet.is_server():\n    fleet.run_server()",
        "from paddock.ps.fleet import run_server as serve\nserve()",
        "from paddock.ps.server import Server",
        "import os\nfrom paddock import ps\nif os.environ['TRAINING_ROLE'] == 'PSERVER': pass",
        "import os\nfrom paddock import ps\nrole = os.getenv('PADDLE_ROLE')",
        "from paddock import ps\nif role.is_server(): pass",
        "import paddock.ps\nprint(",
        "import paddock.ps\0",
        "import paddock.ps\nx = " + "(" * 500 + ")" * 500,
    ],
    ids=lambda text: text[:40].replace("\0", "NUL"),
)
def test_other_scripts_are_their_own_servers(text: str) -> None:
    """Paddle's rule: the script is started once more for every server."""
    assert not only_trains(syntax_nodes(text.encode()))


def test_a_trainer_only_script_gets_paddocks_server(tmp_path: Path) -> None:
    """What the launcher decides, and how it says so."""
    script = tmp_path / "train.py"
    script.write_text("from paddock import ps\n")
    found = decide_servers(job(f"{PS} {script} --lr 1"))
    assert found.servers.command == PSERVER
    assert found.servers.is_provided
    assert found.servers.why.startswith("servers run paddock pserver: train.py uses paddock.ps")
    assert found.sources["servers.command"].name == str(script)
    assert found.command_of("worker").args == ("--lr", "1")


@pytest.mark.parametrize(
    "text",
    [
        "from paddock.ps import fleet\nfleet.run_server()",
        "import paddock.ps.fleet\npaddock.ps.fleet.run_server()",
        "import paddock.ps.fleet as f\nif f.is_server(): f.run_server()",
        "from paddock import ps\nps.fleet.run_server()",
        "import paddock.ps as p\np.fleet.run_server()",
        "from paddock.ps.fleet import run_server as serve\nserve()",
        "import paddle\nfrom paddock.ps import fleet\nfleet.run_server()",
    ],
)
def test_a_script_that_serves_with_paddocks_fleet_is_known(text: str) -> None:
    """However it is imported; Paddle itself may be there for the model."""
    assert serves_with_fleet(syntax_nodes(text.encode()))
    assert not only_trains(syntax_nodes(text.encode()))


@pytest.mark.parametrize(
    "text",
    [
        "from paddock.ps import fleet\nfleet.init()",
        "from paddle.distributed import fleet\nfleet.run_server()  # paddock",
        "import paddock.ps\nfrom paddle.distributed import fleet\nfleet.run_server()",
        "from paddock.ps import fleet\nimport paddle\npaddle.distributed.fleet.run_server()",
        "from paddock.ps import fleet\nimport paddle.distributed as d\nd.fleet.run_server()",
        "from paddock import ps\nfrom paddle.incubate.fleet.base import x\nx.run_server()",
        "from paddock.ps.server import Server\nServer().run_server()",
        "from paddock.ps import fleet\nfleet.run_server(",
    ],
)
def test_other_servers_are_not_taken_for_paddocks_fleet(text: str) -> None:
    """Started again in place, they would have lost their tables."""
    assert not serves_with_fleet(syntax_nodes(text.encode()))


@pytest.mark.parametrize("words", ["", "--server-script same ", "--server-script {} "])
def test_servers_of_a_fleet_script_are_paddocks(tmp_path: Path, words: str) -> None:
    """The same command as the trainers', or a script of their own; they end with the trainers."""
    script = tmp_path / "both.py"
    script.write_text("from paddock.ps import fleet\nfleet.run_server()\n")
    found = decide_servers(job(f"{PS} {words.format(script)}{script}")).servers
    assert (found.is_provided, found.ends_itself, found.is_auto) == (True, True, False)
    assert found.why.startswith("servers run both.py: it serves with paddock.ps.fleet")
    assert found.command is None or found.command.program == str(script)


def test_the_flag_comes_before_the_scripts_text(tmp_path: Path) -> None:
    """--server-script same starts such a script as a server after all."""
    script = tmp_path / "train.py"
    script.write_text("from paddock import ps\n")
    assert decide_servers(job(f"{PS} --server-script same {script}")).servers.command is None
    kept = decide_servers(job(f"{PS} --server-restarts 7 {script}")).servers
    assert (kept.is_provided, kept.max_restarts) == (True, 7)


def test_a_module_is_looked_at_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below this directory, as a file or as a package."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("import paddock.ps\n")
    (tmp_path / "pkg" / "__main__.py").write_text("import paddock.ps\n")
    monkeypatch.chdir(tmp_path)
    assert decide_servers(job(f"{PS} -m pkg.train")).servers.is_provided
    assert decide_servers(job(f"{PS} -m pkg")).servers.is_provided
    assert not decide_servers(job(f"{PS} -m elsewhere")).servers.is_provided


@pytest.mark.parametrize("line", [f"{PS} nowhere.py", f"{PS} ./train.sh", "train.py"])
def test_what_cannot_be_read_is_left_as_it_is(line: str) -> None:
    """A missing script is reported where scripts are checked."""
    assert decide_servers(job(line)).servers.command is None


# ---------------------------------------------------------------------------- PaddleJob


def test_a_paddlejob_names_what_its_servers_run() -> None:
    """spec.ps may run another script than spec.worker."""
    found = of_file(pod("python", "train.py"), pod("python", "serve.py", "7"))
    assert found.command is not None
    assert found.command.argv()[-2:] == ("serve.py", "7")
    assert not found.is_provided
    assert found.why == "servers run serve.py (spec.ps.template.spec.containers[0].command)"


def test_a_paddlejob_can_ask_for_paddocks_server() -> None:
    """By its command, or by its module."""
    found = of_file(pod("python", "train.py"), pod("paddock", "pserver", "--ack", "disk"))
    assert found.is_provided
    assert found.command == Entrypoint("module", "paddock", ("pserver", "--ack", "disk"), PYTHON)
    assert of_file(pod("python", "train.py"), pod("python", "-m", "paddock", "pserver")).is_provided


def test_one_command_for_both_roles_is_the_script() -> None:
    """As the users' documents have it."""
    assert of_file(pod("python", "train.py"), pod("python", "train.py")) == Servers()


def test_the_command_line_wins_over_the_file() -> None:
    """A script named there runs everywhere; --server-script is for the servers."""
    worker, ps = pod("python", "train.py"), pod("python", "serve.py")
    assert of_file(worker, ps, "-f j other.py") == Servers()
    assert of_file(worker, ps, "--server-script pserver -f j").is_provided


def test_a_file_without_servers_has_no_use_for_their_flags() -> None:
    """Said, not dropped."""
    document = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": "j"},
        "spec": {"worker": pod("python", "train.py")},
    }
    with pytest.raises(UsageError) as caught:
        job_from_document(document, parsed("--server-script pserver -f j"))
    assert "--server-script: this file has no servers" in str(caught.value)


def test_only_pserver_is_paddocks_own() -> None:
    """Another command of paddock keeps no log of its state."""
    assert is_pserver(to_command(["pserver"], PYTHON))
    assert is_pserver(Entrypoint("program", "/opt/bin/paddock", ("pserver", "--ack", "disk")))
    assert not is_pserver(Entrypoint("program", "paddock", ("check",)))
    assert not is_pserver(Entrypoint("script", "paddock", ("pserver",)))
