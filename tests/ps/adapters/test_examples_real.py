"""The examples on real servers and trainers: what they learn, together and alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ps.adapters.served import EXAMPLES, SECONDS_MAX, environment, free_ports, train

pytestmark = pytest.mark.real

SCRIPTS = {
    "torch": "wide_deep_torch.py",
    "paddle": "wide_deep_paddle.py",
    "jax": "wide_deep_jax.py",
}
# The judge is a set of 20,000 examples: the standard error of its AUC is about 0.003.
NOISE = 0.01


@pytest.mark.limit(170)
@pytest.mark.parametrize("framework", list(SCRIPTS))
def test_two_async_trainers_learn_as_well_as_one(framework: str) -> None:
    """Twice 100,000 examples, 2 epochs, Adam: 0.80 is wanted, Paddle's own server had 0.579."""
    pytest.importorskip(framework)
    alone = train(SCRIPTS[framework], trainers=1).number("AUC")
    both = train(SCRIPTS[framework], trainers=2, count=2).number("AUC")
    assert alone >= 0.80
    assert both >= 0.80
    assert both >= alone - NOISE


@pytest.mark.limit(170)
@pytest.mark.parametrize("framework", list(SCRIPTS))
def test_two_sync_runs_end_with_the_same_bits(framework: str) -> None:
    """Whoever was faster, and with one server or two."""
    pytest.importorskip(framework)
    words = ("--strategy", "sync", "--examples", "40000", "--epochs", "1")
    one = train(SCRIPTS[framework], *words, trainers=2, count=1).text("parameters")
    two = train(SCRIPTS[framework], *words, trainers=2, count=2).text("parameters")
    assert one == two


@pytest.mark.limit(120)
def test_ten_lines_of_numpy_learn_together() -> None:
    """The README's example runs as it stands."""
    result = train("numpy_ten_lines.py", trainers=2, count=2)
    assert result.number("error", 0) < 0.35
    assert result.number("error", 1) < 0.35


@pytest.mark.limit(150)
def test_one_fleet_script_is_server_and_trainer() -> None:
    """By hand, with Paddle's variables and no launcher."""
    pytest.importorskip("torch")
    ports = free_ports(2)
    common = {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(f"127.0.0.1:{port}" for port in ports),
        "PADDLE_TRAINERS_NUM": "2",
        "POD_IP": "127.0.0.1",
    }
    roles = [{"TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(port)} for port in ports]
    roles += [{"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i)} for i in range(2)]
    words = ["--strategy", "sync", "--examples", "20000", "--epochs", "1"]
    command = [sys.executable, str(EXAMPLES / "fleet_script.py"), *words]
    processes = [
        subprocess.Popen(
            command,
            env=environment(**common, **role),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for role in roles
    ]
    try:
        output = [process.communicate(timeout=SECONDS_MAX)[0] for process in processes[2:]]
        assert [process.returncode for process in processes[2:]] == [0, 0], output
        assert "trainer 0 AUC" in output[0]
    finally:
        for process in processes:
            process.terminate()
            process.communicate(timeout=10)
    assert [process.returncode for process in processes[:2]] == [0, 0]
    assert "PADDLE_PSERVERS_IP_PORT_LIST" not in os.environ
