"""Which process this is, and what fleet makes of it."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps.client.trainer_config import ProcessRole, read_role
from paddock.ps.fleet import (
    INSTEAD,
    DistributedStrategy,
    Fleet,
    client_options,
    server_words,
)
from paddock.ps.spec import SparseSpec
from ps.adapters.served import EXAMPLES
from ps.client.running import fleet as job_of

SERVERS = "10.0.0.1:7000,10.0.0.2:7000"
TRAINER = {
    "TRAINING_ROLE": "TRAINER",
    "PADDLE_PSERVERS_IP_PORT_LIST": SERVERS,
    "PADDLE_TRAINERS_NUM": "3",
    "PADDLE_TRAINER_ID": "2",
}
SERVER = {
    "TRAINING_ROLE": "PSERVER",
    "PADDLE_PSERVERS_IP_PORT_LIST": SERVERS,
    "PADDLE_TRAINERS_NUM": "3",
    "POD_IP": "10.0.0.2",
    "PADDLE_PORT": "7000",
}


def test_a_trainer_reads_its_number_and_its_servers() -> None:
    """The names are Paddle's, so its operator's pods need nothing else."""
    fleet = Fleet(TRAINER)
    fleet.init()
    assert (fleet.is_worker(), fleet.is_server(), fleet.is_first_worker()) == (True, False, False)
    assert (fleet.worker_index(), fleet.worker_num(), fleet.server_num()) == (2, 3, 2)
    assert fleet.server_endpoints(to_string=True) == SERVERS


def test_a_server_finds_itself_by_its_address() -> None:
    """Paddle's rule: POD_IP:PADDLE_PORT stands in the list."""
    fleet = Fleet(SERVER)
    fleet.init()
    assert fleet.is_server()
    assert fleet.server_index() == 1


@pytest.mark.parametrize(
    ("changes", "index"),
    [
        ({"PADDLE_PSERVER_ID": "1", "POD_IP": "somewhere"}, 1),
        ({"POD_IP": "", "PADDLE_PSERVERS_IP_PORT_LIST": "a:1,b:7000"}, 1),
    ],
)
def test_a_server_is_found_by_number_or_by_its_only_port(
    changes: dict[str, str], index: int
) -> None:
    """By hand, and behind names, the address does not stand in the list."""
    assert read_role({**SERVER, **changes}).index == index


def test_a_server_that_is_not_in_the_list_is_refused() -> None:
    """Guessing would give two servers the same shards."""
    with pytest.raises(UsageError, match=r"10\.9\.9\.9:7000, is not in"):
        read_role({**SERVER, "POD_IP": "10.9.9.9"})


def test_everything_missing_is_told_at_once() -> None:
    """Four variables, four runs otherwise."""
    with pytest.raises(UsageError) as caught:
        read_role({})
    text = " ".join(problem.message for problem in caught.value.problems)
    for name in ("TRAINING_ROLE", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINERS_NUM"):
        assert name in text


def test_a_trainer_beyond_the_last_is_refused() -> None:
    """Its pushes would be waited for by nobody."""
    with pytest.raises(UsageError, match="PADDLE_TRAINER_ID is 3"):
        read_role({**TRAINER, "PADDLE_TRAINER_ID": "3"})


def test_a_role_given_needs_no_environment() -> None:
    """As Paddle's UserDefinedRoleMaker."""
    fleet = Fleet({})
    fleet.init(ProcessRole(True, 0, ("127.0.0.1:7001",), 1))
    assert fleet.is_server()


def test_calls_of_the_other_role_are_refused() -> None:
    """A server that trains, or a trainer that serves, is a script with a wrong branch."""
    server, trainer = Fleet(SERVER), Fleet(TRAINER)
    server.init()
    trainer.init()
    with pytest.raises(UsageError, match=r"init_worker\(\) in a server"):
        server.init_worker()
    with pytest.raises(UsageError, match=r"run_server\(\) in a worker"):
        trainer.run_server()
    with pytest.raises(UsageError, match="no client yet"):
        trainer.stop_worker()
    with pytest.raises(UsageError, match="was not called"):
        Fleet(SERVER).is_server()


def test_collective_training_is_pointed_elsewhere() -> None:
    """The name fleet means both in Paddle."""
    with pytest.raises(UsageError, match="is_collective"):
        Fleet(TRAINER).init(is_collective=True)


def test_a_server_gets_the_words_of_the_command() -> None:
    """One server, whoever starts it."""
    words = server_words(read_role(SERVER))
    assert words == [
        "--port=7000",
        "--index=1",
        f"--endpoints={SERVERS}",
        "--num_gradient_servers=3",
        "--end-with-trainers=yes",
    ]


def test_init_server_begins_with_a_checkpoint(tmp_path: Path) -> None:
    """fleet.init_server(dirname), as in the 2.6 documents; of another number of servers, once."""
    spec, keys = SparseSpec("rows", 2), np.arange(50)
    with job_of(1) as servers, servers.client(strategy="half_async") as client:
        client.create(spec)
        client.push("rows", keys, np.ones((50, 2), np.float32))
        client.save(tmp_path / "model")
        wanted, digest = client.pull("rows", keys), client.digest()
    words = server_words(read_role(SERVER), str(tmp_path / "model"))[4:]
    assert words == ["--end-with-trainers=yes", f"--load={tmp_path / 'model'}"]
    with job_of(2, *words, data=tmp_path / "data") as servers:
        with servers.client(strategy="half_async") as client:
            client.create(spec)
            assert client.digest() == digest
            client.push("rows", keys, np.ones((50, 2), np.float32))
            learned = client.pull("rows", keys)
            assert not np.array_equal(learned, wanted)
        for index in range(2):
            servers.stop_one(index)
            servers.restart(index)
        with servers.client(strategy="half_async", trainer=0) as client:
            client.create(spec)
            np.testing.assert_array_equal(client.pull("rows", keys), learned)
    with pytest.raises(UsageError, match="no whole checkpoint"):
        job_of(1, f"--load={tmp_path / 'nothing'}").__enter__()


@pytest.mark.parametrize(
    ("a_sync", "configs", "wanted"),
    [
        (False, {}, {"strategy": "sync"}),
        (True, {}, {"strategy": "async"}),
        (True, {"k_steps": 0}, {"strategy": "async"}),
        (True, {"k_steps": -1}, {"strategy": "async"}),
        (True, {"k_steps": 400}, {"strategy": "geo", "geo_step": 400}),
        (True, {"half_async": True}, {"strategy": "half_async"}),
        (True, {"staleness": 3}, {"strategy": "staleness", "staleness": 3}),
    ],
)
def test_the_strategy_is_chosen_as_in_paddle(
    a_sync: bool, configs: dict[str, int], wanted: dict[str, object]
) -> None:
    """a_sync and k_steps; half_async cannot be had in Paddle, here it can."""
    assert client_options(DistributedStrategy(a_sync, configs)) == wanted


def test_two_strategies_at_once_are_refused() -> None:
    """One of them would not run."""
    with pytest.raises(UsageError, match="geo and sync"):
        client_options(DistributedStrategy(False, {"k_steps": 5}))


def test_misspelt_strategy_fields_are_refused() -> None:
    """Python would set them, and nothing would happen."""
    strategy = DistributedStrategy()
    with pytest.raises(UsageError, match="async_mode"):
        strategy.async_mode = True  # type: ignore[attr-defined]  # that is what is tested
    with pytest.raises(UsageError, match="k_step"):
        strategy.a_sync_configs = {"k_step": 5}


def test_fields_without_effect_are_said() -> None:
    """They tune Paddle's communicator; a script that has them still runs."""
    with pytest.warns(UserWarning, match="no effect here: send_queue_size"):
        strategy = DistributedStrategy(True, {"send_queue_size": 16, "k_steps": 5})
    assert client_options(strategy) == {"strategy": "geo", "geo_step": 5}


@pytest.mark.parametrize("name", ["sync", "async", "half_async", "geo", "staleness"])
def test_the_example_runs_the_strategy_it_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is forgotten would run as async, and nobody would see it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    strategy_of = runpy.run_path(str(EXAMPLES / "fleet_script.py"))["strategy_of"]
    options = client_options(strategy_of(argparse.Namespace(strategy=name, staleness=7)))
    assert options["strategy"] == name
    assert options.get("staleness") == (7 if name == "staleness" else None)


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_what_cannot_be_had_says_what_to_write(name: str) -> None:
    """Paddle's would be a static program, say; the name alone is enough to be told."""
    from paddock.ps import fleet

    with pytest.raises(UsageError, match=f"fleet.{name} is not here") as caught:
        getattr(fleet, name)
    assert caught.value.hint == INSTEAD[name]


def test_paddles_role_makers_are_understood_or_told() -> None:
    """One reads the environment, as init() does; the other has its values in itself."""

    class PaddleCloudRoleMaker:
        """Its name is what is looked at."""

    class UserDefinedRoleMaker:
        """As above."""

    fleet = Fleet(TRAINER)
    for role in (PaddleCloudRoleMaker(), fleet.PaddleCloudRoleMaker(is_collective=False)):
        fleet.init(role)
        assert fleet.worker_index() == 2
    with pytest.raises(UsageError, match="a UserDefinedRoleMaker") as caught:
        fleet.init(UserDefinedRoleMaker())
    assert "fleet.Role(" in caught.value.hint
    with pytest.raises(UsageError, match="is_collective"):
        fleet.PaddleCloudRoleMaker(is_collective=True)


def test_the_module_has_the_names_of_paddle() -> None:
    """Scripts write fleet.init(), not Fleet().init()."""
    from paddock.ps import fleet

    names = (
        "init is_server is_worker is_first_worker worker_index worker_num server_num "
        "server_endpoints init_server run_server init_worker stop_worker barrier_worker "
        "save_persistables load_model shrink distributed_optimizer DistributedStrategy"
    )
    assert all(callable(getattr(fleet, name)) for name in names.split())
    with pytest.raises(AttributeError):
        _ = fleet.no_such_name
