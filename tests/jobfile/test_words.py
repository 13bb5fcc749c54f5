"""The shapes of words: abbreviations, dashes, booleans, what belongs to the script."""

from __future__ import annotations

from pathlib import Path

import pytest

import paddock
from jobfile.reading import PYTHON, job, parsed
from paddock.command_line import Flag
from paddock.core.job import Entrypoint, Job, ValueSource
from paddock.core.value import fields_of
from paddock.jobfile.args import ArgValue, FieldReader
from paddock.jobfile.flags import BY_NAME, FLAGS, GROUPS, LAUNCH, NO_FLAG


@pytest.mark.parametrize(
    "line",
    [
        "--nproc_per_node 2 a.py",
        "--nproc-per-node 2 a.py",
        "--nproc_per_node=2 a.py",
        "--nproc-per-node=2 a.py",
        "--nproc 2 a.py",
        "--nproc_per-node 2 -- a.py",
    ],
)
def test_all_spellings_of_a_flag_mean_the_same(line: str) -> None:
    """argparse's shapes, and dashes, which the original ignores in silence."""
    assert job(line).roles[0].count == 2


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("gpu", "devices"),
        ("mast", "master"),
        ("log_d", "log_dir"),
        ("np", "nnodes"),
        ("run", "run_mode"),
        ("max", "max_restart"),
        ("ho", "host"),
        ("elastic_t", "elastic_timeout"),
        ("start", "start_port"),
        ("workers", "trainers"),
    ],
)
def test_abbreviations_that_work_in_the_original_work(word: str, name: str) -> None:
    """Flags of other launchers must not take Paddle's abbreviations away."""
    assert [f.name for f in LAUNCH.find(word)] == [name]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (
            "a.py --nnodes 5 -m x",
            Entrypoint("script", "a.py", ("--nnodes", "5", "-m", "x"), PYTHON),
        ),
        ("a.py -- --x", Entrypoint("script", "a.py", ("--", "--x"), PYTHON)),
        ("-- a.py --help", Entrypoint("script", "a.py", ("--help",), PYTHON)),
        ("-m pkg.train --lr 1", Entrypoint("module", "pkg.train", ("--lr", "1"), PYTHON)),
        ("-m --nnodes 2 pkg.train -m", Entrypoint("module", "pkg.train", ("-m",), PYTHON)),
        ("./prog -x", Entrypoint("program", "./prog", ("-x",), PYTHON)),
        ("bash -c true", Entrypoint("program", "bash", ("-c", "true"), PYTHON)),
        ("--no-python a.py", Entrypoint("program", "a.py", (), PYTHON)),
        ("--no_python a.py 1", Entrypoint("program", "a.py", ("1",), PYTHON)),
    ],
)
def test_the_script_keeps_its_own_words(line: str, command: Entrypoint) -> None:
    """Everything after the script passes through untouched."""
    assert job(line).command == command


@pytest.mark.parametrize(
    ("line", "is_on"),
    [
        ("--log_overwrite 1 a.py", True),
        ("--log_overwrite=true a.py", True),
        ("--log_overwrite no a.py", False),
        ("--log_overwrite False a.py", False),
        ("--log_overwrite a.py", True),
        ("--log_overwrite --nnodes 1 a.py", True),
        ("--log_overwrite ./prog", True),
        ("a.py", False),
    ],
)
def test_a_bare_boolean_means_true(line: str, is_on: bool) -> None:
    """The original takes the script for the value and fails."""
    found = job(line)
    assert found.logs.overwrite is is_on
    assert found.command.program in ("a.py", "./prog")


@pytest.mark.parametrize(
    ("line", "warm"),
    [
        ("--warm a.py", "on"),
        ("--warm --nnodes 1 a.py", "on"),
        ("--warm ./prog", "on"),
        ("--warm=keep a.py", "keep"),
        ("--warm off a.py", "off"),
        ("--warm 1 a.py", "on"),
        ("--warm=No a.py", "off"),
        ("a.py --warm", "off"),
    ],
)
def test_warm_alone_is_on(line: str, warm: str) -> None:
    """As people write it."""
    assert job(line).warm == warm


def test_the_last_of_two_values_counts_and_is_said() -> None:
    """Wrapper scripts append overrides; argparse lets them, silently."""
    found = parsed("--rank 0 --nnodes 2 --node-rank 1 --master a:1 a.py")
    assert found.job.rendezvous.node_rank == 1
    assert found.notes == (
        "--node-rank is given twice: --rank 0, then --node-rank 1; the last one is used",
    )


def test_ignored_flags_say_so_once() -> None:
    """Old flags stay harmless, and nobody believes that they work."""
    found = parsed("--scale 1 --force 1 --scale 2 --legacy a.py")
    assert len(found.notes) == 3
    assert all("ignored" in note for note in found.notes)
    assert found.job.command.program == "a.py"


def test_env_is_repeatable_and_its_values_stay_out_of_the_sources() -> None:
    """Secrets are passed that way; sources are shown by paddock explain."""
    found = job("--env A=1 --env B=x=y --env A=2 a.py")
    assert found.extra_env == (("A", "2"), ("B", "x=y"))
    assert "x=y" not in repr(found.sources)


def test_every_value_remembers_where_it_came_from() -> None:
    """paddock explain answers "why does it do that?"."""
    found = job("--gpu 0,1 --master 10.0.0.1:80 --nnodes 2 a.py", {"PADDLE_JOB_ID": "j"})
    assert found.sources["devices"].name == "--gpus"
    assert found.sources["rendezvous.port"].name == "--master"
    assert found.sources["job_id"].kind == "environment"
    assert "grace_seconds" not in found.sources


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("--grace 1m30s a.py", "grace_seconds", 90.0),
        ("--shutdown-timeout 5 a.py", "grace_seconds", 5.0),
        ("--timeout 2h a.py", "timeout_seconds", 7200.0),
        ("--framework torch a.py", "framework", "torch"),
        ("--allow-uneven a.py", "allow_uneven", True),
        ("--keep-proxy a.py", "keep_proxy", True),
        ("--omp-num-threads 4 a.py", "omp_num_threads", "4"),
        ("--omp-num-threads share a.py", "omp_num_threads", "share"),
        ("--backend gloo a.py", "extra_env", (("PADDLE_DISTRI_BACKEND", "gloo"),)),
        ("--backend auto a.py", "extra_env", ()),
        ("--start_port 7000 a.py", "start_port", 7000),
        ("--xpus 1,3 a.py", "device_kind", "xpu"),
        ("--npus 0 a.py", "device_kind", "npu"),
        ("--dcus 0 a.py", "device_kind", "dcu"),
        ("--selected_gpus 0,1 a.py", "devices", ("0", "1")),
        ("--devices all a.py", "devices", None),
        ("--devices cpu a.py", "device_kind", "cpu"),
        ("--devices GPU-a,MIG-b a.py", "devices", ("GPU-a", "MIG-b")),
        ("--nproc-per-node gpu a.py", "device_kind", "gpu"),
        ("--with_gloo 2 a.py", "with_gloo", "2"),
        ("--elastic_pre_hook ./prepare a.py", "pre_hook", "./prepare"),
        ("--rdzv-id j a.py", "job_id", "j"),
        ("--run_mode rpc a.py", "mode", "rpc"),
        ("--run_mode PS-heter --heter_worker_num 1 a.py", "mode", "ps-heter"),
    ],
)
def test_single_flags_fill_their_field(line: str, field: str, value: object) -> None:
    """One row per flag that stands alone."""
    assert getattr(job(line), field) == value


@pytest.mark.parametrize(
    ("line", "group", "field", "value"),
    [
        ("--log_dir x a.py", "logs", "directory", "x"),
        ("--log_level debug a.py", "logs", "level", "DEBUG"),
        ("--log_level warn a.py", "logs", "level", "WARNING"),
        ("--tail all a.py", "logs", "tail", ("all",)),
        ("--tail none a.py", "logs", "tail", ()),
        ("--tail 0,server,trainer a.py", "logs", "tail", ("0", "ps", "worker")),
        ("--tee 3 a.py", "logs", "tail", ("all",)),
        ("-t 3 a.py", "logs", "tail", ("all",)),
        ("--prefix never a.py", "logs", "prefix", "never"),
        ("--max-restarts 2 a.py", "restart", "max_restarts", 2),
        ("--restart-on oom,101,any a.py", "restart", "restart_on", ()),
        ("--restart-on OOM,101 a.py", "restart", "restart_on", ("oom", "101")),
        ("--restart-backoff 2:8 a.py", "restart", "backoff_max_seconds", 8.0),
        ("--restart-backoff 90 a.py", "restart", "backoff_max_seconds", 90.0),
        ("--nnodes 1:3 a.py", "restart", "max_restarts", 3),
        ("--elastic_level 0 a.py", "restart", "max_restarts", 3),
        ("--nnodes 1:3 --elastic_level 0 a.py", "elastic", "level", 0),
        ("--elastic_timeout 5 a.py", "elastic", "timeout_seconds", 5.0),
        ("--lease 500ms a.py", "rendezvous", "lease_seconds", 0.5),
        ("--join-timeout 10 a.py", "rendezvous", "join_timeout_seconds", 10.0),
        ("--sort_ip 1 a.py", "rendezvous", "sort_ip", True),
        ("--token-file k a.py", "rendezvous", "token_file", "k"),
        ("--tls-cert c --tls-key k a.py", "rendezvous", "tls_key", "k"),
    ],
)
def test_flags_of_a_group_fill_their_field(
    line: str, group: str, field: str, value: object
) -> None:
    """The same for the parts of a job."""
    assert getattr(getattr(job(line), group), field) == value


def test_one_process_per_core_on_request() -> None:
    """torchrun's --nproc-per-node cpu."""
    found = job("--nproc-per-node cpu a.py")
    assert found.device_kind == "cpu"
    assert (found.roles[0].count or 0) >= 1


def test_zero_processes_mean_unset_as_in_the_original() -> None:
    """0 is treated as unset, as in the original."""
    assert job("--nproc_per_node auto a.py").roles[0].count is None


def test_the_table_of_flags_is_sound() -> None:
    """Names are unique, groups known, every flag explained in one line."""
    names = [n for f in FLAGS for n in (f.name, *f.aliases)]
    assert len(names) == len(set(names)) == len(BY_NAME)
    assert all(f.group in GROUPS and f.help and "\n" not in f.help for f in FLAGS)
    assert all("-" not in n and n.islower() for n in names if n != "help-all")
    assert all(f.metavar for f in FLAGS if f.kind not in ("switch",))


# Of a job, and no user's: what a decision leaves behind, and what is counted with.
DECIDED = {
    "roles", "sources", "rank_commands", "rendezvous.etcd_url", "restart.healthy_seconds",
    "servers.is_auto", "servers.is_provided", "servers.window_seconds", "servers.why",
    "servers.ends_itself",
}  # fmt: skip


def test_every_field_of_a_job_is_in_the_table() -> None:
    """And the table names no other: what is derived from it has all of them, and no word twice."""
    job = Job(Entrypoint("program", "a"))
    parts = ("rendezvous", "elastic", "restart", "servers", "logs")
    known = {f"{part}.{name}" for part in parts for name, _ in fields_of(getattr(job, part))}
    known |= {name for name, _ in fields_of(job)} - {*parts}
    told = {path for flag in FLAGS for path in flag.fields} | {*NO_FLAG}
    assert {path for path in told if not path.startswith(("roles.", "command."))} == known - DECIDED
    for path in told:
        job.value_of(path)


def test_every_flag_that_is_not_plain_is_read() -> None:
    """A row alone would take a value, and nothing would become of it."""
    files = Path(paddock.__file__).parent.rglob("*.py")
    source = "".join(p.read_text("utf-8") for p in files if p.name != "flags.py")
    unread = [f.name for f in FLAGS if f.field and not f.is_plain and f'"{f.name}"' not in source]
    assert unread == []


@pytest.mark.parametrize("flag", [flag for flag in FLAGS if flag.is_plain], ids=lambda f: f.name)
def test_the_default_that_help_shows_is_that_of_the_job(flag: Flag) -> None:
    """Help and Job each say it; a field that is left out gets the Job's."""
    value = Job(Entrypoint("program", "a")).value_of(flag.field)
    if value in (None, "") or flag.kind == "switch":
        assert flag.default in ("", "None", "6767")
        return
    source = ValueSource("flag", f"--{flag.name}")
    assert FieldReader({flag.name: ArgValue(flag.default, source)}).plain(flag) == value
