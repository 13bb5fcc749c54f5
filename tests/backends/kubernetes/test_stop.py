"""`paddock stop --now`: whatever the cluster answers, no pod keeps its whole grace in silence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from kube.scripted import answer, refusal, talking
from paddock.backends.kubernetes import api
from paddock.backends.kubernetes.parse import INDEX_LABELS, Seen
from paddock.kube.client import KubeError
from paddock.kube.objects import Pod

if TYPE_CHECKING:
    from kube.scripted import Script

TOP = {"metadata": {"name": "a", "uid": "1"}}
POD = {"metadata": {"name": "a-0-xyz", "uid": "2", "labels": {INDEX_LABELS[0]: "0"}}}
SEEN = Seen("job", TOP, (msgspec.convert(POD, Pod),), ("a-0",), {"worker": 1}, 1.0)
MODIFIED = refusal(409, "Conflict", "it was modified")
ANOTHER = refusal(
    409, "Conflict", "Precondition failed: UID in precondition: 2, UID in object meta: 3"
)
GONE = refusal(404, "NotFound", "there is none")
FORBIDDEN = refusal(403, "Forbidden", "it is not yours to delete")


def asked_of(*answers: Script) -> int:
    """How often the pod's end is asked for, when that is answered so."""

    async def scenario() -> int:
        async with talking(answer(200, TOP), *answers) as (server, client):
            await api.end(client, SEEN, "ml", now=True)
            return sum(asked.method == "DELETE" for asked in server.asked)

    return asyncio.run(scenario())


def test_a_pod_that_others_change_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever suspended the job deletes its pods in the same moment, with all of their grace."""
    monkeypatch.setattr(api, "RETRY_PAUSES", (0.0, 0.0))
    assert asked_of(MODIFIED, MODIFIED, answer(200, {})) == 3


@pytest.mark.parametrize("said", [GONE, ANOTHER])
def test_a_pod_that_has_gone_needs_no_end(said: Script) -> None:
    """One of the same name is not ours."""
    assert asked_of(said) == 1


def test_a_pod_that_may_not_be_ended_is_told() -> None:
    """It goes on for its grace: nobody should believe that it was stopped at once."""
    with pytest.raises(KubeError, match="not yours"):
        asked_of(FORBIDDEN)
