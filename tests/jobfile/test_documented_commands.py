"""Every command line of the users' documents parses to the job the documents describe.

Sources: "Starting a distributed job" (the launch guide) and "Deployment" (the deployment guide) of
Paddle's documentation.
"""

from __future__ import annotations

from functools import partial

import pytest

from jobfile.reading import PYTHON, job, parsed
from paddock.core.job import FIXED_LEASE_SECONDS, Entrypoint, Rendezvous, Role
from paddock.core.value import replace
from paddock.jobfile.configuration import configuration

tcp = partial(Rendezvous, "tcp", lease_seconds=FIXED_LEASE_SECONDS)


TRAIN = Entrypoint("script", "train.py", (), PYTHON)
TWO_IPS = ("192.168.0.1", "192.168.0.2")
TWO_NODES = tcp("192.168.0.1", 6069, ips=TWO_IPS)
EIGHT = tuple("01234567")


@pytest.mark.parametrize(
    ("line", "devices", "nnodes"),
    [
        ("--gpus 0,1,2,3,4,5,6,7 train.py --batch_size=64", EIGHT, 1),
        ("--gpus 2,3 train.py --batch_size=64", ("2", "3"), 1),
        ("--gpus=0,1,2,3,4,5,6,7 --ips=192.168.0.1,192.168.0.2 train.py --batch_size=64", EIGHT, 2),
        ("--gpus=0,1,2,3 --ips=192.168.0.1,192.168.0.2 train.py --batch_size=64", EIGHT[:4], 2),
        ("--gpus=0,1 --ips=192.168.0.1,192.168.0.2 train.py --batch_size=64", ("0", "1"), 2),
        ("--gpus=2,3 --ips=192.168.0.1,192.168.0.2 train.py --batch_size=64", ("2", "3"), 2),
        ("--ips=192.168.0.1,192.168.0.2 train.py", None, 2),
        ("--gpus=0,1,2,3,4,5,6,7 train.py", EIGHT, 1),
        ("--log_dir=log/ --run_mode collective --gpus=4,5,6,7 train.py", EIGHT[4:], 1),
    ],
)
def test_collective_examples_parse(line: str, devices: tuple[str, ...] | None, nnodes: int) -> None:
    """One process per named card; --ips alone makes the job span nodes, says the launch guide."""
    found = job(line)
    assert found.mode == "collective"
    assert found.devices == devices
    assert found.device_kind == ""
    assert (found.nnodes_min, found.nnodes_max) == (nnodes, nnodes)
    assert found.rendezvous == (TWO_NODES if nnodes == 2 else Rendezvous())
    assert found.roles == (Role("worker"),)
    assert found.command == replace(TRAIN, args=found.command.args)
    assert ("--batch_size=64" in line) == (found.command.args == ("--batch_size=64",))


def test_the_first_node_without_master_serves_and_prints_the_command() -> None:
    """The deployment guide: --nnodes=2 demo.py prints the line for the other nodes."""
    found = job("--nnodes=2 demo.py")
    assert found.rendezvous == tcp("", 0)
    assert (found.nnodes_min, found.nnodes_max) == (2, 2)


def test_the_printed_command_joins_the_first_node() -> None:
    """The deployment guide: the line with --master."""
    found = job("--master 123.45.67.89:25880 --nnodes=2 demo.py")
    assert found.rendezvous == tcp("123.45.67.89", 25880)


def test_help_is_a_marker_and_not_an_error() -> None:
    """The deployment guide: --help; also before an otherwise bad command line."""
    assert parsed("--help").is_help
    assert parsed("-h --nnodes x").is_help
    assert not parsed("train.py --help").is_help


SERVERS = ("192.168.0.16:6170", "192.168.0.17:6170")
WORKERS = (
    "192.168.0.16:6171",
    "192.168.0.16:6172",
    "192.168.0.17:6171",
    "192.168.0.17:6172",
)
TWO_PS_NODES = tcp("192.168.0.16", 6169, ips=("192.168.0.16", "192.168.0.17"))


def test_parameter_server_lists_on_two_hosts() -> None:
    """--servers and --workers with ports; the hosts of the lists are the nodes."""
    found = job(f"--servers={','.join(SERVERS)} --workers={','.join(WORKERS)} train.py")
    assert found.mode == "ps"
    assert found.roles == (Role("ps", None, SERVERS), Role("worker", None, WORKERS))
    assert found.nnodes_max == 2
    assert found.rendezvous == TWO_PS_NODES


def test_workers_without_ports_get_those_after_the_servers() -> None:
    """ "the IP alone may be given"; 6170 and on, after the servers of that host."""
    found = job(f"--servers={','.join(SERVERS)} --workers=192.168.0.16,192.168.0.17 train.py")
    worker = found.role("worker")
    assert worker is not None
    assert worker.endpoints == ("192.168.0.16:6171", "192.168.0.17:6171")


def test_heter_workers_without_devices_are_accepted() -> None:
    """The launch guide omits --heter_devices in its example, the original then refuses it."""
    found = job(
        f"--servers={','.join(SERVERS)} --workers=192.168.0.16:6171,192.168.0.17:6171 "
        "--heter_workers=192.168.0.16:6172,192.168.0.17:6172 train.py"
    )
    assert found.mode == "ps-heter"
    heter = ("192.168.0.16:6172", "192.168.0.17:6172")
    assert found.roles[2] == Role("heter", None, heter, 2, "cpu")
    assert found.roles[1].stage == 1


@pytest.mark.parametrize(
    ("line", "mode", "counts"),
    [
        ("--worker_num=2 --server_num=2 train.py", "ps", {"ps": 2, "worker": 2}),
        ("--run_mode ps --worker_num=4 train.py", "ps", {"ps": 1, "worker": 4}),
        ("--server_num=1 --trainer_num=2 train.py", "ps", {"ps": 1, "worker": 2}),
        (
            "--worker_num=1 --server_num=1 --heter_worker_num=3 train.py",
            "ps-heter",
            {"ps": 1, "worker": 1, "heter": 3},
        ),
    ],
)
def test_parameter_server_simulated_on_one_machine(
    line: str, mode: str, counts: dict[str, int]
) -> None:
    """The launch guide: counts start everything on one host; what is left out counts 1."""
    found = job(line)
    assert found.mode == mode
    assert {r.name: r.count for r in found.roles} == counts
    assert found.rendezvous.kind == "alone"


def test_heter_stages_are_roles_of_their_own() -> None:
    """Stages by semicolon, the workers are stage 1."""
    found = job("--server_num 1 --worker_num 1 --heter_worker_num 1;2 --heter_devices cpu;gpu a.py")
    assert found.roles[2:] == (
        Role("heter", 1, (), 2, "cpu"),
        Role("heter", 2, (), 3, "gpu"),
    )


def test_the_gloo_port_has_two_names() -> None:
    """The launch guide: --http_port."""
    assert job("--server_num 1 --worker_num 1 --http_port 8123 a.py").gloo_port == 8123
    assert job("--server_num 1 --worker_num 1 --gloo_port 8123 a.py").gloo_port == 8123


def test_the_elastic_flags_mean_etcd() -> None:
    """--elastic_server, --job_id, --np, --host; --np is ambiguous in the original."""
    found = job("--elastic_server=127.0.0.1:2379 --job_id=job1 --np=2 --host 10.0.0.5 train.py")
    assert found.rendezvous == Rendezvous(
        "etcd", etcd=("127.0.0.1:2379",), etcd_url="etcd://127.0.0.1:2379", own_host="10.0.0.5"
    )
    assert (found.job_id, found.nnodes_min, found.nnodes_max) == ("job1", 2, 2)
    assert (found.elastic.level, found.restart.max_restarts) == (1, 3)


def test_elastic_with_etcd_and_a_range() -> None:
    """The deployment guide: etcd master, a job id and --nnodes 2:4 make the job elastic."""
    found = job("--master etcd://10.0.0.1:2379 --nnodes 2:4 --job_id a --devices 6,7 demo.py")
    assert found.rendezvous.kind == "etcd"
    assert found.rendezvous.etcd == ("10.0.0.1:2379",)
    assert (found.nnodes_min, found.nnodes_max, found.elastic.level) == (2, 4, 1)
    assert found.is_elastic


def test_the_configuration_block_has_the_documented_lines() -> None:
    """The deployment guide tells users to check these lines; absent values print as in Paddle."""
    shown = configuration(parsed("--devices 6,7 --log_level DEBUG demo.py").job)
    assert list(shown) == sorted(shown)
    assert dict(shown) == {
        "devices": "6,7",
        "elastic_level": "-1",
        "elastic_timeout": "30",
        "gloo_port": "6767",
        "host": "None",
        "ips": "None",
        "job_id": "default",
        "legacy": "False",
        "log_dir": "log",
        "log_level": "DEBUG",
        "log_overwrite": "False",
        "master": "None",
        "max_restart": "0",
        "nnodes": "1",
        "nproc_per_node": "None",
        "rank": "-1",
        "run_mode": "collective",
        "server_num": "None",
        "servers": "",
        "sort_ip": "False",
        "start_port": "6070",
        "trainer_num": "None",
        "trainers": "",
        "training_script": "demo.py",
        "training_script_args": "[]",
        "with_gloo": "1",
    }
