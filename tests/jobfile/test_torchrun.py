"""torchrun's own flags and variables: what they mean here, and which words of them are refused."""

from __future__ import annotations

import pytest

from jobfile.reading import job, parsed, problems
from paddock.jobfile.parse import parse

KUBEFLOW = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "2",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29400",
}


def test_variables_of_kubeflow_make_one_job_of_two_nodes() -> None:
    """They were ignored in silence: two pods ran two jobs of size 1, and learned nothing."""
    found = job("train.py", KUBEFLOW)
    assert (found.nnodes_min, found.nnodes_max) == (2, 2)
    assert found.rendezvous.node_rank == 1
    assert (found.rendezvous.host, found.rendezvous.port) == ("job-node-0-0.job", 29400)
    assert found.roles[0].count == 2


def test_the_source_of_each_such_value_is_its_variable() -> None:
    """paddock explain shows it; one note at the start names all that were used."""
    found = parsed("train.py", KUBEFLOW)
    assert found.job.sources["nnodes_min"].name == "PET_NNODES"
    assert found.job.sources["rendezvous.host"].name == "PET_MASTER_ADDR"
    (note,) = found.notes
    assert "PET_NNODES=2" in note
    assert "PET_MASTER_PORT=29400" in note


@pytest.mark.parametrize(
    ("line", "env", "nnodes"),
    [
        ("--nnodes 3 --master a:1 train.py", KUBEFLOW, 3),
        ("train.py", {**KUBEFLOW, "PADDLE_NNODES": "4"}, 4),
        ("train.py", {**KUBEFLOW, "TORCHELASTIC_RUN_ID": "x"}, 1),
        ("train.py", {**KUBEFLOW, "PADDOCK_ATTEMPT": "0"}, 1),
        ("--ignore-env train.py", KUBEFLOW, 1),
    ],
)
def test_such_a_variable_speaks_only_where_nothing_else_does(
    line: str, env: dict[str, str], nnodes: int
) -> None:
    """torchrun's order, and not inside a rank, where it tells of the launcher around it."""
    assert job(line, env).nnodes_max == nnodes


@pytest.mark.parametrize("line", ["--master b:2", "--rdzv-endpoint b:2", "--elastic_server b:2"])
def test_an_address_of_the_command_line_is_not_mixed_with_one_of_a_variable(line: str) -> None:
    """Host of one and port of the other would be a place where nobody is."""
    found = job(f"{line} train.py", KUBEFLOW).rendezvous
    assert (found.host, found.port, found.etcd) in (("b", 2, ()), ("", 0, ("b:2",)))


def test_a_secret_in_an_address_of_a_variable_is_not_told() -> None:
    """Notes go to logs."""
    env = {"PET_RDZV_ENDPOINT": "etcd://u:secret@h:1", "PET_RDZV_BACKEND": "etcd"}
    assert not any("secret" in note for note in parsed("train.py", env).notes)


@pytest.mark.parametrize(
    ("line", "streams"),
    [
        ("--tee 3", ((-1, 3),)),
        ("--redirects 3", ((-1, 0),)),
        ("-r 1", ((-1, 2),)),
        ("-r 3 -t 0:3", ((-1, 0), (0, 3))),
        ("-r 3 -t 0:1,2:2", ((-1, 0), (0, 1), (2, 2))),
        ("-r 1:3", ((-1, 3), (1, 0))),
        ("--local-ranks-filter 0,2", ((-1, 0), (0, 3), (2, 3))),
        ("--local-ranks-filter 0 --redirects 2", ((-1, 0), (0, 1))),
        ("--tee 0", ((-1, 3),)),
        ("", ()),
    ],
)
def test_what_the_console_shows_is_what_torchrun_would_show(
    line: str, streams: tuple[tuple[int, int], ...]
) -> None:
    """Shown is what is not redirected, or teed, of the ranks that the filter lets through."""
    found = job(f"{line} train.py").logs
    assert found.streams == streams
    assert found.tail == (("all",) if streams else ("0",))


def test_streams_are_told_of_each_local_rank() -> None:
    """Ranks that no flag names follow the general rule."""
    logs = job("-r 3 -t 1:2 train.py").logs
    assert [logs.streams_of(rank) for rank in range(3)] == [0, 2, 0]
    assert job("train.py").logs.streams_of(5) == 3


def test_the_waits_of_rdzv_conf_are_ours() -> None:
    """How long to wait for nodes, and for more of them, is what users set there."""
    found = parsed("--rdzv-conf join_timeout=90,last_call_timeout=5,is_host=1 train.py")
    assert found.job.rendezvous.join_timeout_seconds == 90
    assert found.job.elastic.timeout_seconds == 5
    assert found.notes == ("--rdzv-conf: is_host has no counterpart and is ignored",)
    assert job("--rdzv-conf timeout=7 train.py").rendezvous.join_timeout_seconds == 7
    own = job("--join-timeout 3 --rdzv-conf join_timeout=90 train.py")
    assert own.rendezvous.join_timeout_seconds == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--tee 4", "--tee 4: '4' names no streams"),
        ("--tee x:3", "--tee x:3: 'x:3' names no streams"),
        ("--redirects 3,1:2", "either one value for all ranks, or RANK:VALUE for each"),
        ("--local-ranks-filter a", "not a list of local ranks"),
        ("--rdzv-conf join_timeout", "'join_timeout' is not KEY=VALUE"),
        ("--rdzv-conf join_timeout=soon", "join_timeout=soon is not a number of seconds"),
        ("--rdzv-conf join_timout=5", "there is no key 'join_timout'"),
        ("--signals-to-handle SIGKILL", "SIGKILL is not handled"),
        ("--logs-specs mine", "a plug-in of torchrun"),
        ("--rdzv-endpoint node0:0 --nnodes 2", "port 0: the other nodes cannot find node0"),
    ],
)
def test_a_word_that_says_nothing_is_one_clear_problem(line: str, message: str) -> None:
    """What torchrun would answer with a traceback, or not notice."""
    (found,) = problems(f"{line} train.py")
    assert message in found.message


def test_any_free_port_of_this_node_is_a_meeting_point_that_it_prints() -> None:
    """localhost:0 is in many scripts; alone it means nothing, with others the port is told."""
    assert job("--rdzv-endpoint localhost:0 train.py").rendezvous.kind == "alone"
    found = job("--nnodes 1:2 --rdzv-endpoint localhost:0 train.py").rendezvous
    assert (found.kind, found.host, found.port) == ("tcp", "", 0)


def test_signals_that_are_handled_anyway_are_accepted() -> None:
    """Slurm scripts add SIGUSR1, which reaches every process here without a flag."""
    assert parsed("--signals-to-handle SIGTERM,SIGUSR1 train.py").notes == ()


def test_a_prefix_template_keeps_its_blanks() -> None:
    """They stand between the prefix and the line."""
    template = "[${role_name}${local_rank}] "
    found = job("train.py", {"PET_LOG_LINE_PREFIX_TEMPLATE": template})
    assert found.logs.line_prefix == template


@pytest.mark.parametrize("words", [("train.py",), ("-m", "pkg.train"), ("--run_path", "train")])
def test_python_exec_names_the_interpreter(words: tuple[str, ...]) -> None:
    """torchrun's override, for who has the launcher and the framework in two environments."""
    env = {"PYTHON_EXEC": "/venv/bin/python"}
    assert parse(words, env, python="py").job.command.argv()[0] == "/venv/bin/python"
    ignored = parse(("--ignore-env", *words), env, python="py").job.command
    assert ignored.argv()[0] == "py"


def test_a_program_is_not_run_by_python_exec() -> None:
    """Nor is an empty variable a path."""
    command = parse(("--no_python", "./train"), {"PYTHON_EXEC": "/p"}, python="py").job.command
    assert command.argv() == ("./train",)
    assert parse(("train.py",), {"PYTHON_EXEC": ""}, python="py").job.command.python == "py"
