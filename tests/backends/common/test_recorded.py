"""How hosts have ended, by what their launchers recorded of the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paddock.backends.common.recorded import end_of
from paddock.backends.mpi.state import status_of as of_mpi
from paddock.backends.slurm.parse import JobDirectoryState
from paddock.backends.slurm.parse import status_of as of_slurm
from paddock.backends.ssh.state import status_of as of_ssh
from paddock.backends.types import RankStatus

if TYPE_CHECKING:
    from paddock.backends.types import State


@pytest.mark.parametrize(
    ("job", "ranks", "note", "state"),
    [
        ("failed", "succeeded succeeded", "", "succeeded"),
        ("failed", "ended failed", "", "failed"),
        ("failed", "ended ended", "", "cancelled"),
        ("failed", "ended ended", "is silent for 3.0 s", "lost"),
        ("failed", "", "stands by", "cancelled"),
        ("failed", "", "", "cancelled"),
        ("cancelled", "failed ended", "", "cancelled"),
        ("cancelled", "succeeded", "", "succeeded"),
        ("lost", "ended", "", "lost"),
        ("succeeded", "", "", "succeeded"),
    ],
)
def test_the_table_row_by_row(job: State, ranks: str, note: str, state: State) -> None:
    """One table for all backends whose launchers tell of ranks."""
    found = [RankStatus("worker", at, word) for at, word in enumerate(ranks.split())]
    assert end_of(job, found, note) == state


def test_backends_agree_on_hosts_that_were_only_stopped() -> None:
    """By ssh each host says that its own launcher failed; the coordinator's word counts."""
    nodes = [
        {"host": f"h{at}", "node_rank": at, "note": "",
         "ranks": [{"role": "worker", "rank": at, "state": state, "code": None}]}
        for at, state in enumerate(("running", "failed", "running"))
    ]  # fmt: skip
    verdict = {"kind": "fail", "code": 7, "text": "worker 1 on h1 exited with code 7"}
    whole = {"nodes": nodes, "verdict": verdict, "at": 1.0}
    own = {"state": "failed", "code": 7}
    told = JobDirectoryState(state={"state": "failed", "code": 7}, whole=whole, verdict=verdict)
    for status in (
        of_ssh(["h0", "h1", "h2"], [{**own, "whole": whole}, own, own], 2.0),
        of_mpi(own, whole, verdict, 2.0),
        of_slurm([], {"": told}, 2.0),
    ):
        assert [n.state for n in status.nodes] == ["cancelled", "failed", "cancelled"], status
        assert (status.state, status.code) == ("failed", 7)
