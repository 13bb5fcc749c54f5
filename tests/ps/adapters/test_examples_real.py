"""The examples on real servers and trainers: what they learn, together and alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ps.adapters.served import Servers, finish, start_trainers, train

pytestmark = pytest.mark.real

SCRIPTS = {
    "torch": "wide_deep_torch.py",
    "paddle": "wide_deep_paddle.py",
    "jax": "wide_deep_jax.py",
}
# So few ids that 40,000 examples are enough: the best that is possible is 0.85.
SMALL = (
    "--vocab", "100", "--examples", "40000", "--epochs", "1", "--batch", "512", "--lr", "0.004"
)  # fmt: skip


@pytest.mark.limit(170)
@pytest.mark.parametrize("framework", list(SCRIPTS))
def test_two_async_trainers_learn(framework: str) -> None:
    """Each sees half of the examples, and both train one model; a half alone gives 0.78."""
    pytest.importorskip(framework)
    assert train(SCRIPTS[framework], *SMALL, trainers=2, count=2).number("AUC") >= 0.80


@pytest.mark.limit(170)
def test_two_trainers_learn_what_one_does() -> None:
    """In sync the same batches, cut in halves: the same model but for rounding."""
    pytest.importorskip("torch")
    words = (*SMALL, "--strategy", "sync")
    alone = train(SCRIPTS["torch"], *words, trainers=1).number("AUC")
    both = train(SCRIPTS["torch"], *words, trainers=2, count=2).number("AUC")
    assert alone >= 0.80
    assert abs(both - alone) < 0.002


@pytest.mark.limit(170)
@pytest.mark.parametrize("framework", ["paddle", "jax"])  # torch: tests/real/test_servers.py
def test_neither_who_is_faster_nor_how_many_serve_nor_who_is_killed_changes_a_bit(
    framework: str, tmp_path: Path
) -> None:
    """In sync: one server, and two that are killed in turn, kill -9, while two trainers go on."""
    pytest.importorskip(framework)
    words = ("--strategy", "sync", "--epochs", "1", "--examples", "10240", "--batch", "128")
    calm = train(SCRIPTS[framework], *words, trainers=2, count=1).text("parameters")
    servers = Servers(2, 2, tmp_path)
    try:
        servers.start_all()
        trainers = start_trainers(SCRIPTS[framework], words, servers.endpoints, 2)
        assert trainers[1].stdout is not None
        read = ""
        for batch, victim in ((20, 1), (60, 0)):
            while f"batch {batch} " not in read:
                line = trainers[1].stdout.readline()
                assert line, read  # the trainer has ended
                read += line
            servers.kill_and_restart(victim)
        assert finish(trainers).text("parameters") == calm
    finally:
        servers.end()


@pytest.mark.limit(120)
def test_ten_lines_of_numpy_learn_together() -> None:
    """The README's example runs as it stands."""
    result = train("numpy_ten_lines.py", trainers=2, count=2)
    assert result.number("error", 0) < 0.2
    assert result.number("error", 1) < 0.2
