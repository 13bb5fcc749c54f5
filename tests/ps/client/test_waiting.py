"""A trainer that waits for others says for whom; one of several without a number is refused."""

from __future__ import annotations

import io
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from paddock.errors import UsageError
from paddock.ps.client import waiting
from paddock.ps.client.trainer_config import read_trainer_config
from paddock.ps.client.waiting import WaitReport
from ps.client.running import fleet

TWO = "--num_gradient_servers=2"
ADDRESS = "127.0.0.1:7164"


class _Written(io.StringIO):
    """The lines of a wait, and an event once there is one; servers of this process write, too."""

    def __init__(self) -> None:
        super().__init__()
        self.has_line = Event()

    def write(self, text: str) -> int:
        if "has waited" in text:
            super().write(text)
            self.has_line.set()
        return len(text)


@pytest.mark.parametrize("strategy", ["sync", "async"])
def test_a_trainer_whose_peer_never_joined_says_so(
    monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    """As after a mistake in the numbers; it goes on once the other is there."""
    written = _Written()
    monkeypatch.setattr(waiting, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", written)
    options = {"strategy": strategy, "timeout": 1.5}
    with fleet(1, TWO) as running, ThreadPoolExecutor(1) as pool:

        def meet(trainer: int) -> None:
            with running.client(trainer=trainer, trainers=2, **options) as client:
                client.barrier()

        waits = pool.submit(meet, 0)
        assert written.has_line.wait(30)
        line = written.getvalue().splitlines()[0]
        assert line.startswith("paddock.ps: trainer 0 has waited ")
        assert line.endswith(
            "trainer 1, which has not joined: each needs its own PADDLE_TRAINER_ID"
        )
        meet(1)
        waits.result(30)


def test_lines_of_a_wait_come_ever_more_rarely(capsys: pytest.CaptureFixture[str]) -> None:
    """After 10 s, and each after twice the time of the one before; none where nobody is known."""
    clock = [0.0]
    report = WaitReport(1, now=lambda: clock[0])
    group = {"expected": 2, "members": [{"trainer": 0, "step": 7}], "waiting_for": [0]}
    for second in range(60):
        clock[0] = float(second)
        report.look(lambda: group)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" s for ")[0].rpartition(" ")[2] for line in lines] == ["10", "20", "40"]
    assert lines[0].endswith("for trainer 0, after its step 7")
    clock[0] = 200.0
    report.look(dict)
    assert capsys.readouterr().err == ""


def test_one_of_several_trainers_has_to_say_which() -> None:
    """Two without a number would both be trainer 0."""
    env = {"PADDLE_TRAINERS_NUM": "2"}
    with pytest.raises(UsageError, match="one of 2 trainers, and PADDLE_TRAINER_ID does not say"):
        read_trainer_config(env, ADDRESS, None, None, None, None, None)
    alone = read_trainer_config({"PADDLE_TRAINERS_NUM": "1"}, ADDRESS, None, None, None, None, None)
    assert (alone.trainer, alone.trainers) == (0, 1)
    second = read_trainer_config(env, ADDRESS, 1, None, None, None, None)
    assert (second.trainer, second.trainers) == (1, 2)
