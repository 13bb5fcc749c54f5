"""init(**kwargs) and PADDLE_INIT_*: who wins, what is refused, and never alone by mistake."""

from __future__ import annotations

import socket

import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps.trainer_init import init, read_init_arguments

ENV = {
    "PADDLE_INIT_PSERVERS": "10.0.0.1,10.0.0.2",
    "PADDLE_INIT_NUM_GRADIENT_SERVERS": "4",
    "PADDLE_INIT_TRAINER_ID": "3",
    "PADDLE_INIT_PORT": "7000",
    "PADDLE_INIT_USE_GPU": "False",
    "PADDLE_INIT_TRAINER_COUNT": "2",
}


def test_the_environment_gives_every_value() -> None:
    """v0.10's variables, as its clusters set them."""
    found = read_init_arguments({}, ENV)
    assert found.endpoints == ("10.0.0.1:7000", "10.0.0.2:7000")
    assert (found.trainer_id, found.num_gradient_servers) == (3, 4)
    with pytest.raises(UsageError, match="PADDLE_INIT_USE_GPU is 'perhaps'"):
        read_init_arguments({}, {**ENV, "PADDLE_INIT_USE_GPU": "perhaps"})


def test_keywords_win_over_the_environment() -> None:
    """The documented rule."""
    found = read_init_arguments({"trainer_id": 0, "pservers": "h:1,k"}, ENV)
    assert found.trainer_id == 0
    assert found.endpoints == ("h:1", "k:7000")


def test_the_launcher_of_today_is_understood_too() -> None:
    """Under paddock launch the servers are in Paddle's later variables."""
    env = {
        "PADDLE_PSERVERS_IP_PORT_LIST": "a:1,b:2",
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_TRAINERS_NUM": "2",
    }
    found = read_init_arguments({"use_gpu": False}, env)
    assert found.endpoints == ("a:1", "b:2")
    assert (found.trainer_id, found.num_gradient_servers) == (1, 2)


def test_every_unknown_keyword_and_wrong_value_is_named() -> None:
    """All at once, with what is known."""
    with pytest.raises(UsageError) as caught:
        read_init_arguments({"trainer_number": 1, "pserver": "h", "port": "http"}, {})
    messages = " ".join(problem.message for problem in caught.value.problems)
    for word in ("trainer_number", "pserver", "init(port=...)"):
        assert word in messages
    assert "num_gradient_servers" in caught.value.problems[0].hint


@pytest.mark.parametrize(
    ("kwargs", "env"),
    [
        ({}, {"PADDLE_CLUSTER_TRAIN": "True"}),
        ({"local": 0}, {}),
        ({"pservers": ""}, {}),
        ({"num_gradient_servers": 2}, {}),
        ({}, {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "1"}),
        ({}, {"PADDLE_TRAINERS_NUM": "2"}),
        ({"local": 1}, {"PADDLE_CLUSTER_TRAIN": "1"}),
        ({"local": 1, "pservers": "h"}, {}),
    ],
)
def test_nobody_trains_alone_by_mistake(kwargs: dict[str, object], env: dict[str, str]) -> None:
    """The old scripts forgot to export their variables, and each trainer learnt for itself."""
    with pytest.raises(UsageError, match=r"no pservers are named|local=1 beside"):
        read_init_arguments(kwargs, env)


def test_training_alone_is_said_aloud(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing asks for servers: that is allowed, and visible."""
    assert init(use_gpu=False, trainer_count=1) is None
    assert "trains alone" in capsys.readouterr().err


def test_a_trainer_number_beyond_the_trainers_is_refused() -> None:
    """num_gradient_servers was documented as the number of servers, and jobs hung."""
    with pytest.raises(UsageError, match="trainer_id is 3"):
        read_init_arguments({"pservers": "h", "trainer_id": 3, "num_gradient_servers": 2}, {})


def test_named_servers_that_do_not_answer_are_an_error() -> None:
    """init() connects, so that the failure is there and not in the results."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(PaddockError, match=str(port)):
        init(pservers=f"127.0.0.1:{port}", timeout=0.1)


@pytest.mark.parametrize(
    "place",
    [
        {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"},
        {"PMI_RANK": "2", "PMI_SIZE": "3"},
        {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3"},
    ],
)
def test_mpirun_and_srun_tell_which_trainer_this_is(place: dict[str, str]) -> None:
    """A script that exported its servers alone made three trainers 0 of 1."""
    found = read_init_arguments({}, {"PADDLE_INIT_PSERVERS": "h", **place})
    assert (found.trainer_id, found.num_gradient_servers) == (2, 3)
    given = {"PADDLE_INIT_TRAINER_ID": "0", "PADDLE_INIT_NUM_GRADIENT_SERVERS": "5"}
    found = read_init_arguments({}, {"PADDLE_INIT_PSERVERS": "h", **place, **given})
    assert (found.trainer_id, found.num_gradient_servers) == (0, 5)


def test_one_of_several_that_is_not_told_which_is_refused() -> None:
    """All of them would be trainer 0."""
    env = {"PADDLE_INIT_PSERVERS": "h", "OMPI_COMM_WORLD_SIZE": "3"}
    with pytest.raises(UsageError, match="OMPI_COMM_WORLD_RANK does not say which this is"):
        read_init_arguments({}, env)
