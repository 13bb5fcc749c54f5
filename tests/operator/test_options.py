"""The flags of `paddock operator run`: the old ones work, mistakes are told at once."""

from __future__ import annotations

import pytest

from paddock.cli.family import carry_out
from paddock.cli.main import run
from paddock.cli.operator import COMMANDS
from paddock.errors import UsageError
from paddock.operator.options import OperatorOptions, read_options


def test_no_flags_are_the_defaults_of_the_table() -> None:
    """What the help says is what is done."""
    assert read_options([]) == OperatorOptions()


def test_the_old_operators_command_line_is_taken() -> None:
    """deploy/v1/operator.yaml of paddle-operator v0.3.5, and what its documents add."""
    words = [
        "--leader-elect", "--namespace=paddle-system", "--scheduling", "volcano",
        "--initImage=alpine:3.10", "--health-probe-bind-address=:8082",
        "--metrics-bind-address=127.0.0.1:8080", "--etcd-server", "http://e:2379",
        "--port-range=35000,65000", "--zap-devel", "--zap-log-level=info", "-zap-encoder", "json",
    ]  # fmt: skip
    options = read_options(words)
    assert options.leader_elect and options.namespaces == ("paddle-system",)
    assert options.settings.scheduling == "volcano"
    assert options.settings.init_image == "alpine:3.10"
    assert options.settings.host_ports == (35000, 65000)
    assert (options.metrics_bind_address, options.health_probe_bind_address) == (
        "127.0.0.1:8080",
        ":8082",
    )
    said = "\n".join(options.warnings)
    for name in ("--etcd-server", "--port-range", "--zap-devel", "--zap-log-level"):
        assert name in said


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["-leader-elect=true"], True),
        (["-leader-elect"], True),
        (["--leader-elect=T"], True),
        (["--leader-elect=false"], False),
        (["--leader-elect=0"], False),
    ],
)
def test_switches_are_read_as_go_reads_them(words: list[str], value: bool) -> None:
    """The old operator was written in Go, and so are its users' manifests."""
    assert read_options(words).leader_elect is value


@pytest.mark.parametrize(
    ("words", "namespaces"),
    [
        (["--namespace="], ("",)),
        (["--namespace", "a"], ("a",)),
        (["--namespace=a,b", "--namespace", "c,a"], ("a", "b", "c")),
    ],
)
def test_namespaces_may_be_several(words: list[str], namespaces: tuple[str, ...]) -> None:
    """Empty means all, as it always did."""
    assert read_options(words).namespaces == namespaces


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--leader-elct"], "unknown flag --leader-elct"),
        (["--workers"], "--workers needs a value"),
        (["--workers", "--leader-elect"], "--workers needs a value"),
        (["--workers=0"], "--workers is '0'"),
        (["--workers=many"], "--workers is 'many'"),
        (["--workers=9999"], "--workers is '9999'"),
        (["--kube-api-qps=-1"], "--kube-api-qps is '-1'"),
        (["--force-delete-after=soon"], "--force-delete-after is 'soon'"),
        (["--kube-api-qps=nan"], "--kube-api-qps is 'nan'"),
        (["--kube-api-burst=0"], "--kube-api-burst is '0'"),
        (["--scheduling=slurm"], "--scheduling is 'slurm'"),
        (["--log-level=loud"], "--log-level is 'loud'"),
        (["--leader-elect=maybe"], "--leader-elect is 'maybe'"),
        (["--port-range=1"], "--port-range is '1'"),
        (["--port-range=40000,30000"], "--port-range is '40000,30000'"),
        (["run"], "'run' is not expected here"),
    ],
)
def test_a_bad_flag_is_one_clear_error(words: list[str], complaint: str) -> None:
    """With a hint; the operator does not start half right."""
    with pytest.raises(UsageError) as caught:
        read_options(words)
    (problem,) = caught.value.problems
    assert problem.message == complaint and problem.hint


def test_all_mistakes_are_told_together() -> None:
    """Nobody wants to learn of them one restart at a time."""
    with pytest.raises(UsageError) as caught:
        read_options(["--zork", "--workers=0", "--scheduling=slurm"])
    assert len(caught.value.problems) == 3
    assert "--workers" in read_error(["operator", "run", "--wrokers", "3"])


def read_error(words: list[str]) -> str:
    """Hints of a failing command."""
    with pytest.raises(UsageError) as caught:
        carry_out("operator", COMMANDS, words[1:])
    return caught.value.hint


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["operator"], 0),
        (["operator", "--help"], 0),
        (["operator", "run", "--help"], 0),
        (["operator", "crd"], 0),
        (["operator", "crd", "--version=v1beta1"], 0),
        (["operator", "manifests", "--namespace", "x", "--replicas=2", "--crd"], 0),
        (["operator", "rnu"], 2),
        (["operator", "run", "--zork"], 2),
        (["operator", "crd", "--version=v9"], 2),
        (["operator", "crd", "--zork"], 2),
        (["operator", "manifests", "--replicas=x"], 2),
        (["operator", "manifests", "--replicas"], 2),
        (["operator", "manifests", "--crd=maybe"], 2),
        (["operator", "run", "--kubeconfig", "/nowhere/config"], 2),
        (["operator", "check", "--kubeconfig", "/nowhere/config"], 2),
        (["operator", "check", "--zork"], 2),
    ],
)
def test_exit_codes_are_those_of_every_command(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """2 for a mistake, with one error on stderr and nothing on stdout."""
    assert run(words) == code
    said = capsys.readouterr()
    if code:
        assert said.err.count("error:") == 1 and "hint:" in said.err and not said.out
    else:
        assert said.out and not said.err
