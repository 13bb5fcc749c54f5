"""`paddock stop --now`: whatever the cluster answers, no pod keeps its whole grace in silence."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from kube.scripted import answer, refusal, talking
from paddock.backends.kubernetes import api
from paddock.backends.kubernetes.parse import INDEX_LABELS, ObservedJob
from paddock.kube.client import KubeError
from paddock.kube.objects import Pod

if TYPE_CHECKING:
    from kube.scripted import Script

TOP = {"metadata": {"name": "a", "uid": "1"}}
POD = {"metadata": {"name": "a-0-xyz", "uid": "2", "labels": {INDEX_LABELS[0]: "0"}}}
SEEN = ObservedJob("job", TOP, (msgspec.convert(POD, Pod),), ("a-0",), {"worker": 1}, 1.0)
MODIFIED = refusal(409, "Conflict", "it was modified")
ANOTHER = refusal(
    409, "Conflict", "Precondition failed: UID in precondition: 2, UID in object meta: 3"
)
GONE = refusal(404, "NotFound", "there is none")
FORBIDDEN = refusal(403, "Forbidden", "it is not yours to delete")


def asked_of(*answers: Script) -> list[tuple[str, object]]:
    """What the cluster is asked, and with which spec, when the pod's end is answered so."""

    async def scenario() -> list[tuple[str, object]]:
        async with talking(answer(200, TOP), *answers, answer(200, TOP)) as (server, client):
            said = []
            try:
                await api.end(client, SEEN, "ml", now=True)
            except KubeError as error:
                said = [(error.reason, None)]
            return [(asked.method, asked.body.get("spec")) for asked in server.asked] + said

    return asyncio.run(scenario())


NOTED, SUSPENDED, ENDED = ("PATCH", None), ("PATCH", {"suspend": True}), ("DELETE", None)


def test_a_pod_that_others_change_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And before the job is suspended: then others delete them, with all of their grace."""
    monkeypatch.setattr(api, "RETRY_PAUSES", (0.0, 0.0))
    found = asked_of(MODIFIED, MODIFIED, answer(200, {}))
    assert found == [NOTED, ENDED, ENDED, ENDED, SUSPENDED]


@pytest.mark.parametrize("said", [GONE, ANOTHER])
def test_a_pod_that_has_gone_needs_no_end(said: Script) -> None:
    """One of the same name is not ours."""
    assert asked_of(said) == [NOTED, ENDED, SUSPENDED]


def test_a_pod_that_may_not_be_ended_is_told() -> None:
    """It goes on for its grace: nobody should believe that it was stopped at once."""
    assert asked_of(FORBIDDEN) == [NOTED, ENDED, SUSPENDED, ("Forbidden", None)]
