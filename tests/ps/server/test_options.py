"""The words of `paddock pserver` and its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.help import command_help
from paddock.command_line import spelled
from paddock.errors import UsageError
from paddock.ps.server.main import is_own_host
from paddock.ps.server.options import IGNORED, TABLE, read_options

ROOT = Path(__file__).resolve().parents[3]
THREE = "10.0.0.1:7164,10.0.0.2:7164,10.0.0.2:7165"


PAIR = ["--witness=w:1", "--data-dir=d", "--ack=replica"]


def problems(words: list[str], env: dict[str, str] | None = None) -> list[str]:
    """What is wrong with the words."""
    with pytest.raises(UsageError) as caught:
        read_options(words, env or {})
    return [problem.message for problem in caught.value.problems]


def test_nothing_given_is_a_loopback_server_in_memory() -> None:
    """The documented port, one trainer."""
    options = read_options([], {})
    assert (options.port, options.bind, options.ack) == (7164, "127.0.0.1", "memory")
    assert (options.num_gradient_servers, options.index, options.endpoints) == (1, 0, ())


def test_dashes_underscores_and_equals_are_the_same() -> None:
    """As everywhere in Paddock."""
    for words in (
        ["--data-dir", "d", "--snapshot-every=2G"],
        ["--data_dir=d", "--snapshot_every", "2GiB"],
        ["-data_dir=d", "-snapshot-every=2g"],
    ):
        options = read_options(words, {})
        assert (options.data_dir, options.snapshot_every, options.ack) == ("d", 2 << 30, "log")


@pytest.mark.parametrize(
    ("env", "field", "value"),
    [
        ({"PADDLE_PORT": "8000"}, "port", 8000),
        ({"PADDLE_INIT_PORT": "8001"}, "port", 8001),
        ({"PADDLE_PORT": "8000", "PADDLE_INIT_PORT": "8001"}, "port", 8000),
        ({"PADDLE_TRAINERS_NUM": "4"}, "num_gradient_servers", 4),
        ({"PADDLE_INIT_NUM_GRADIENT_SERVERS": "5"}, "num_gradient_servers", 5),
        ({"PADDLE_JOB_ID": "ads"}, "job", "ads"),
        ({"PADDOCK_PS_MEMORY_LIMIT": "1.5G"}, "memory_limit", 3 << 29),
    ],
)
def test_the_environment_stands_in_for_flags(
    env: dict[str, str], field: str, value: object
) -> None:
    """The newer name first."""
    assert getattr(read_options([], env), field) == value


def test_a_flag_wins_over_the_environment() -> None:
    """The nearer one counts."""
    options = read_options(["--port", "1"], {"PADDLE_PORT": "2", "PADDLE_TRAINERS_NUM": ""})
    assert (options.port, options.num_gradient_servers) == (1, 1)


@pytest.mark.parametrize(
    ("words", "env", "index", "bind"),
    [
        (["--index=2"], {}, 2, "10.0.0.2"),
        (["--port=7165"], {}, 2, "10.0.0.2"),
        (["--port=7164"], {"POD_IP": "10.0.0.2"}, 1, "10.0.0.2"),
        (["--index=0", "--bind=0.0.0.0"], {}, 0, "0.0.0.0"),
    ],
)
def test_a_server_finds_its_place_among_the_endpoints(
    words: list[str], env: dict[str, str], index: int, bind: str
) -> None:
    """By --index, by address and port, or by a port that is there once."""
    options = read_options([*words, f"--endpoints={THREE}"], env)
    assert (options.index, options.bind) == (index, bind)


@pytest.mark.parametrize(
    ("words", "env", "own", "index", "advertise"),
    [
        ([], {}, (), 0, "a:7"),  # One server, whichever half: the primary is listed first.
        (["--replica-of=a:7"], {}, (), 0, "b:7"),
        (["--replica-of=b:7"], {}, (), 0, "a:7"),
        (["--bind=b"], {}, (), 0, "b:7"),
        (["--advertise=b:9"], {}, (), 0, "b:9"),
        ([], {"POD_IP": "b"}, ("a", "b"), 0, "b:7"),
        ([], {}, ("b",), 0, "b:7"),  # The replica, promoted with the words of a primary.
        ([], {}, ("a", "b"), 0, "a:7"),
    ],
)
def test_a_pair_with_equal_ports_needs_no_index(
    words: list[str], env: dict[str, str], own: tuple[str, ...], index: int, advertise: str
) -> None:
    """Two machines with one image have equal ports; the address tells the halves apart."""
    given = [*PAIR, "--port=7", "--endpoints=a:7|b:7", *words]
    options = read_options(given, env, lambda host: host in own)
    assert (options.index, options.advertise) == (index, advertise)


@pytest.mark.parametrize(("words", "index"), [(["--bind=c"], 1), ([], 1), (["--index=0"], 0)])
def test_the_machines_addresses_decide_between_servers(words: list[str], index: int) -> None:
    """All servers of a job may have one port, as an operator gives them."""
    given = ["--port=7", "--endpoints=a:7|b:7,c:7|d:7", *words]
    assert read_options(given, {}, lambda host: host in ("c", "d")).index == index


@pytest.mark.parametrize("ack", ["memory", "log", "disk"])
def test_a_pair_whose_pushes_do_not_wait_is_warned(ack: str) -> None:
    """It is allowed, and not what most mean by a replica."""
    (said,) = read_options([*PAIR, f"--ack={ack}"], {}).said
    assert said.startswith(f"warning: --ack {ack}: ") and "--ack replica" in said
    assert read_options(PAIR, {}).said == ()


def test_an_address_of_this_machine_is_known_by_binding() -> None:
    """Another's address cannot be bound."""
    assert is_own_host("127.0.0.1") and is_own_host("localhost")
    assert not is_own_host("192.0.2.1")


def test_a_token_opens_every_address() -> None:
    """Without one only this machine is served."""
    assert read_options(["--token-file=t"], {}).bind == "0.0.0.0"
    assert read_options([], {}).bind == "127.0.0.1"


@pytest.mark.parametrize("name", [*IGNORED])
def test_each_flag_of_2017_is_accepted_and_said(name: str) -> None:
    """With a value, with '=', and as the last word without one."""
    for words in ([f"--{name}", "1"], [f"--{name}=1"], [f"--{name}"]):
        options = read_options([*words], {})
        assert options.said == (f"--{name} does nothing here: {IGNORED[name]}",)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prot", "1"], "unknown flag --prot"),
        (["7164"], "'7164' is not expected here"),
        (["--port"], "--port needs a value"),
        (["--port", "--ack=log"], "--port needs a value"),
        (["--port=x"], "--port is 'x'"),
        (["--port=70000"], "--port is 70000"),
        (["--memory-limit=8Q"], "--memory-limit is '8Q'"),
        (["--memory-limit="], "--memory-limit is ''"),
        (["--memory-limit=1e999"], "--memory-limit is '1e999'"),
        (["--memory-limit=-1G"], "--memory-limit is '-1G'"),
        (["--snapshot-every=-1"], "--snapshot-every is '-1'"),
        (["--trainer-timeout=nan"], "--trainer-timeout is 'nan'"),
        (["--trainer-timeout=-5"], "--trainer-timeout is '-5'"),
        (["--ack=fsync", "--data-dir=d"], "--ack is 'fsync'"),
        (["--ack=disk"], "--ack disk needs a log"),
        (["--num_gradient_servers=0"], "--num_gradient_servers is 0"),
        (["--on-lost-trainer=wait"], "--on-lost-trainer is 'wait'"),
        (["--tls-key=k"], "--tls-key is set without --tls-cert"),
        (["--endpoints=a:1,a:1"], "--endpoints lists a:1 twice"),
        (["--endpoints=a:1,b:2", "--port=3"], "this server (port 3) is not one of a:1,b:2"),
        (["--endpoints=a:1", "--index=4"], "is not one of a:1"),
        (["--index=1"], "--index is 1, but no other server is known"),
        ([*PAIR, "--replica-of=a:1", "--promote=yes"], "--promote=yes and --replica-of exclude"),
        (["--promote=yes"], "--promote needs a witness"),
        ([*PAIR, "--promote=y"], "--promote is 'y'"),
        ([*PAIR, "--bind=::"], "--bind :: does not say how others reach this server"),
        (["--endpoints=a:1|b:1,c:1|d:1", "--port=1"], "port 1 is that of servers 0, 1 of"),
    ],
)
def test_each_mistake_is_told(words: list[str], message: str) -> None:
    """By the flag's name and what was given."""
    assert any(message in told for told in problems(words)), problems(words)


def test_all_mistakes_are_told_at_once() -> None:
    """One run is enough to find them."""
    assert len(problems(["--prot=1", "--port=x", "--memory-limit=y", "--ack=foo"])) == 4


def test_help_names_every_flag_and_variable() -> None:
    """Written from the table."""
    text = " ".join(command_help("pserver").split())
    shown = [one for one in TABLE.flags if one.status == "normal" and one.name != "help"]
    assert all(f"{spelled(one.name)} " in text for one in shown)
    assert all(f"${name}" in text for one in shown for name in one.env)


def test_a_flag_that_is_nearly_one_is_named_once() -> None:
    """Its value is not another mistake."""
    with pytest.raises(UsageError) as caught:
        read_options(["--prot", "7164"], {})
    assert [p.hint for p in caught.value.problems] == ["did you mean --port or --promote?"]


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_an_open_server_is_warned(address: str) -> None:
    """Who does not know the token may do nothing; without one, everybody may."""
    (said,) = read_options([f"--bind={address}"], {}).said
    assert said.startswith(f"warning: --bind {address} without a token") and "--token-file" in said
    assert read_options([f"--bind={address}", "--token-file=t"], {}).said == ()
    assert read_options(["--bind=10.0.0.1"], {}).said == ()
