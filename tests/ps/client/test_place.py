"""Where a trainer's servers are, and which trainer it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.errors import UsageError
from paddock.ps.client.admin import read_admin_settings
from paddock.ps.client.trainer_config import read_trainer_config
from paddock.ps.connection import read_token

SERVERS = {"PADDLE_PSERVERS_IP_PORT_LIST": "a:1,b:2"}


def place(env: dict[str, str], **given: Any) -> Any:
    """read_trainer_config with what is given."""
    names = ("endpoints", "trainer", "trainers", "job", "token_file", "tls_ca")
    return read_trainer_config(env, *(given.get(name) for name in names))


def problems(env: dict[str, str], **given: Any) -> str:
    """Everything that is wrong, on one line."""
    with pytest.raises(UsageError) as caught:
        place(env, **given)
    return "; ".join(problem.message for problem in caught.value.problems)


def test_arguments_win_over_the_environment() -> None:
    """Each by itself."""
    env = {**SERVERS, "PADDLE_TRAINER_ID": "1", "PADDLE_TRAINERS_NUM": "3", "PADDLE_JOB_ID": "j"}
    found = place(env)
    assert (found.endpoints, found.trainer, found.trainers, found.job) == (
        ("a:1", "b:2"),
        1,
        3,
        "j",
    )
    found = place(env, endpoints="c:3", trainer=2, job="k")
    assert (found.endpoints, found.trainer, found.trainers, found.job) == (("c:3",), 2, 3, "k")


def test_one_trainer_of_a_default_job_needs_no_environment() -> None:
    """A list or a text of servers is enough."""
    found = place({}, endpoints=["a:1 ", " b:2|c:2"])
    assert found.endpoints == ("a:1", "b:2|c:2")
    assert (found.trainer, found.trainers, found.job) == (0, 1, "default")


@pytest.mark.parametrize(
    ("env", "given", "message"),
    [
        ({}, {}, "no parameter server is named"),
        ({"PADDLE_PSERVERS_IP_PORT_LIST": " , "}, {}, "no parameter server is named"),
        ({}, {"endpoints": "a"}, "server endpoint 'a'"),
        ({}, {"endpoints": "a:0"}, "server endpoint 'a:0'"),
        ({}, {"endpoints": "a:1 b:2"}, "server endpoint 'a:1 b:2'"),
        ({}, {"endpoints": "a:1;b:2"}, "server endpoint 'a:1;b:2'"),
        ({}, {"endpoints": "a:1|b"}, "server endpoint 'b'"),
        ({}, {"endpoints": "a:1,b:1,a:1"}, "server a:1 is listed more than once"),
        ({**SERVERS, "PADDLE_TRAINER_ID": "x"}, {}, "PADDLE_TRAINER_ID is 'x'"),
        ({**SERVERS, "PADDLE_TRAINERS_NUM": "0"}, {"trainer": 1}, "trainer 1 of 0"),
        (SERVERS, {"trainer": 2, "trainers": 2}, "trainer 2 of 2"),
        (SERVERS, {"trainer": -1, "trainers": 2}, "trainer -1 of 2"),
        ({**SERVERS, "TRAINING_ROLE": "PSERVER"}, {}, "this process is a server"),
    ],
)
def test_each_mistake_is_told(env: dict[str, str], given: dict[str, Any], message: str) -> None:
    """By name and value."""
    assert message in problems(env, **given)


def test_all_mistakes_are_told_at_once() -> None:
    """One run is enough to find them."""
    told = problems({"PADDLE_TRAINER_ID": "x", "PADDLE_TRAINERS_NUM": "y"}, endpoints="a")
    assert told.count(";") == 2


def test_an_admin_may_run_in_a_servers_environment() -> None:
    """Only trainers must not."""
    assert read_admin_settings({**SERVERS, "TRAINING_ROLE": "PSERVER"}).endpoints == ("a:1", "b:2")
    with pytest.raises(UsageError):
        read_admin_settings({}, endpoints="a:x")


def test_a_token_is_what_is_in_its_file(tmp_path: Path) -> None:
    """Without the white space around it; an empty file is an error."""
    path = tmp_path / "token"
    path.write_text(" secret\n")
    assert (read_token(str(path)), read_token("")) == (b"secret", b"")
    path.write_text("\n")
    for name, message in ((path, "is empty"), (tmp_path / "no", "No such file")):
        with pytest.raises(UsageError, match=message):
            read_token(str(name))
