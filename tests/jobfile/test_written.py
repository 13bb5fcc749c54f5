"""A Job as a PaddleJob: what is written is read back, and what cannot be written is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobfile.reading import PYTHON, job, parsed
from paddock.core.job import Entrypoint, Job, Logs, Rendezvous, Restart, Role, Servers
from paddock.core.value import replace
from paddock.errors import UsageError
from paddock.jobfile.dialects.paddlejob import resolve_file
from paddock.jobfile.dialects.written import to_document, words_of
from paddock.jobfile.parse import parse

TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12)
WORDS = TEXTS.filter(bool)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True).map(lambda text: f"X{text}")
SECONDS = st.integers(1, 10_000) | st.floats(0.001, 1e5).map(lambda number: round(number, 6))
COUNTS = st.integers(1, 64)
COMMANDS = st.builds(
    Entrypoint,
    kind=st.sampled_from(("script", "module", "program")),
    program=WORDS,
    args=st.lists(TEXTS, max_size=4).map(tuple),
    python=st.just(PYTHON),
)
JOBS = st.builds(
    Job,
    command=COMMANDS,
    job_id=st.from_regex(r"[a-z][a-z0-9]{0,20}(-[a-z0-9]{1,10})?", fullmatch=True),
    framework=st.sampled_from(("auto", "torch", "none")),
    roles=st.builds(lambda count: (Role("worker", count),), COUNTS),
    rendezvous=st.builds(Rendezvous, join_timeout_seconds=SECONDS, lease_seconds=SECONDS),
    restart=st.builds(
        Restart,
        max_restarts=st.integers(0, 9),
        backoff_initial_seconds=st.integers(0, 10).map(float),
        backoff_max_seconds=st.integers(10, 100).map(float),
        restart_on=st.sampled_from(((), ("oom",), ("oom", "7"))),
    ),
    logs=st.builds(
        Logs,
        directory=WORDS.filter(str.strip).map(lambda text: text.strip()),
        overwrite=st.booleans(),
        level=st.sampled_from(("INFO", "ERROR")),
        tail=st.sampled_from(((), ("0",), ("0", "worker"), ("all",))),
        prefix=st.sampled_from(("auto", "never")),
        console=st.sampled_from(("auto", "paddle")),
    ),
    grace_seconds=SECONDS,
    timeout_seconds=SECONDS,
    stall_after_seconds=SECONDS,
    debug_ranks=st.booleans(),
    metrics_port=st.none() | st.integers(0, 65535),
    start_port=st.none() | st.integers(1024, 60000),
    port_range=st.none() | st.just((35100, 64000)),
    fixed_port=st.none() | st.integers(1024, 60000),
    with_gloo=st.sampled_from(("0", "1", "2")),
    keep_proxy=st.booleans(),
    omp_num_threads=st.sampled_from(("auto", "keep", "4")),
    extra_env=st.dictionaries(NAMES, TEXTS, max_size=3).map(lambda found: tuple(found.items())),
    warm=st.sampled_from(("off", "on", "keep")),
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where each job of a test is written."""
    return str(tmp_path_factory.mktemp("jobs") / "job.json")


def read_back(written: Job, path: str) -> Job:
    """The job of its PaddleJob, read as `paddock launch -f` does."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(to_document(written), file)
    return resolve_file(parsed(f"-f {path}")).job


@given(JOBS)
@settings(max_examples=200, deadline=None)
def test_a_job_is_read_back_as_it_was_written(path: str, written: Job) -> None:
    """Whoever saves a job as a PaddleJob launches the same job from it."""
    assert read_back(written, path) == written


@given(JOBS)
@settings(max_examples=100, deadline=None)
def test_the_words_of_a_job_are_its_command_line(written: Job) -> None:
    """What no flag says, and the variables of the ranks, are the document's."""
    elsewhere = {"extra_env": (), "job_id": "default"}
    wanted = replace(written, port_range=None, fixed_port=None, **elsewhere)
    assert parse(words_of(written), {}, python=PYTHON).job == wanted


@pytest.mark.parametrize("line", [
    "--run-mode rpc --nproc-per-node 2 x.py",
    "--server-num 2 --trainer-num 3 x.py",
    "--server-num 2 --trainer-num 3 --server-script same --with-gloo 2 x.py",
    "--server-num 1 --trainer-num 1 --server-script pserver x.py",
    "--server-num 1 --trainer-num 1 --server-script serve.py -m package.train",
    "--server-num 1 --trainer-num 1 --heter-worker-num 2 x.py",
    "--nproc-per-node 2 --no-python ./$(X) $$ -- a",
])  # fmt: skip
def test_modes_are_read_back(path: str, line: str) -> None:
    """Servers too: their command stands with the flags."""
    from paddock.jobfile.servers import decide_servers

    written = decide_servers(job(line))
    assert decide_servers(read_back(written, path)) == written


def test_all_that_cannot_be_written_is_named_at_once() -> None:
    """A job that comes back as another one would be found out by its results."""
    written = job("--nnodes 2 --devices 0,1 --job-id My_job --master 10.0.0.1:1 x.py")
    with pytest.raises(UsageError) as caught:
        to_document(written)
    names = [problem.message.partition("=")[0] for problem in caught.value.problems]
    assert names == ["nnodes_min", "nnodes_max", "roles.worker.count", "devices",
                     "rendezvous.kind", "rendezvous.host", "rendezvous.port", "job_id"]  # fmt: skip
    assert "nproc=2" in str([problem.hint for problem in caught.value.problems])


def test_another_kind_is_refused() -> None:
    """There is one kind, and the message says which."""
    with pytest.raises(UsageError, match="cannot be written as 'TrainJob'"):
        job("--nproc-per-node 2 x.py").to_yaml("TrainJob")


def test_jobs_are_equal_wherever_their_values_came_from() -> None:
    """Sources are for `paddock explain`; a set of jobs has each intent once."""
    one, other = job("--max-restart 2 x.py"), job("x.py", {"PADDLE_MAX_RESTART": "2"})
    assert one.sources != other.sources
    assert len({one, other, replace(one, servers=Servers(why="because"))}) == 1
    assert one != replace(one, grace_seconds=11.0)
    assert one != "x.py"
