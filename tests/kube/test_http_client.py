"""The real client against a scripted server: what it sends, and that every failure is a KubeError.

The same calls against a real API server: tests/cluster/test_client_twins_real.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lightkube.config.kubeconfig import KubeConfig

from kube.scripted import (
    POD,
    after,
    answer,
    get_a,
    hangs_up,
    refusal,
)
from paddock import __version__
from paddock.kube.client import LEASES, PADDLE_JOBS, PODS, KubeError, Query
from paddock.kube.http_client import HttpOptions, open_client

# ------------------------------------------------------------------------------------- what is sent


def test_get_says_who_asks_and_decodes_the_shape() -> None:
    """The User-Agent is what an administrator finds in the audit log."""
    asked, pod = after(answer(200, POD), get_a)
    assert (asked.method, asked.path) == ("GET", "/api/v1/namespaces/ml/pods/a")
    assert asked.headers["user-agent"] == f"paddock/{__version__}"
    assert asked.headers["accept-encoding"] == "identity"
    assert pod.status.phase == "Running"


def test_page_names_selectors_limit_and_version() -> None:
    """A list that selects too much costs a large cluster dearly."""
    query = Query("ml", labels="a=b", fields="status.phase=Running", limit=2)
    body = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [POD]}
    asked, page = after(
        answer(200, body), lambda client: client.page(PODS, query, resource_version="0")
    )
    assert asked.query == {
        "labelSelector": "a=b",
        "fieldSelector": "status.phase=Running",
        "limit": "2",
        "resourceVersion": "0",
    }
    assert (page.resource_version, page.rest, len(page.items)) == ("9", "more", 1)


def test_rest_of_a_list_does_not_name_a_version() -> None:
    """The server refuses both together: the token already says which version."""
    asked, page = after(
        answer(200, {"metadata": {}, "items": None}),
        lambda client: client.page(PODS, Query(), resource_version="9", rest="more"),
    )
    assert asked.path == "/api/v1/pods"
    assert asked.query == {"limit": "500", "continue": "more"}
    assert page.items == ()


def test_create_fills_in_the_kind_and_can_be_dry() -> None:
    """The server does not guess the kind of a custom object."""
    manifest: dict[str, object] = {"metadata": {"name": "j"}}
    asked, job = after(
        answer(201, {"metadata": {"name": "j", "uid": "u"}}),
        lambda client: client.create(PADDLE_JOBS, "ml", manifest, dry_run=True),
    )
    assert asked.body == {
        "apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": {"name": "j"},
    }  # fmt: skip
    assert asked.query == {"dryRun": "All", "fieldManager": "paddock-operator"}
    assert job.metadata.uid == "u"
    assert "kind" not in manifest


def test_delete_is_in_the_background_and_names_the_very_object() -> None:
    """Without the uid a new object of the same name could be deleted."""
    asked, _ = after(
        answer(200, {"kind": "Status"}),
        lambda client: client.delete(PODS, "ml", "a", uid="u1", grace_seconds=0),
    )
    assert asked.method == "DELETE"
    assert asked.body["propagationPolicy"] == "Background"
    assert asked.body["preconditions"] == {"uid": "u1"}
    assert asked.body["gracePeriodSeconds"] == 0


def test_delete_leaves_the_grace_to_the_pod_when_not_told() -> None:
    """gracePeriodSeconds null and absent are the same; 0 would kill at once."""
    asked, _ = after(answer(200, {}), lambda client: client.delete(PODS, "ml", "a"))
    assert "gracePeriodSeconds" not in asked.body
    assert "preconditions" not in asked.body


@pytest.mark.parametrize(
    ("kind", "content_type"),
    [
        ("merge", "application/merge-patch+json"),
        ("json", "application/json-patch+json"),
        ("apply", "application/apply-patch+yaml"),
    ],
)
def test_each_patch_has_its_content_type(kind: Any, content_type: str) -> None:
    """The content type alone tells the server how to read a patch."""
    change: Any = [] if kind == "json" else {"metadata": {"labels": {"x": "y"}}}
    asked, _ = after(
        answer(200, POD),
        lambda client: client.patch(PODS, "ml", "a", change, kind=kind, subresource="status"),
    )
    assert asked.path == "/api/v1/namespaces/ml/pods/a/status"
    assert asked.headers["content-type"] == content_type


def test_apply_is_by_our_manager_and_by_force() -> None:
    """A field that kubectl once set must not stop the operator."""
    asked, _ = after(
        answer(200, POD),
        lambda client: client.patch(
            LEASES, "ml", "l", {"metadata": {"uid": "u"}, "spec": {}}, kind="apply"
        ),
    )
    assert asked.query == {"fieldManager": "paddock-operator", "force": "true"}
    assert asked.body["metadata"] == {"name": "l", "uid": "u"}
    assert asked.body["apiVersion"] == "coordination.k8s.io/v1"


# --------------------------------------------------------------------------------------- refusals


def test_refusal_carries_reason_message_and_causes() -> None:
    """The status of a job shows the server's own sentence, and names the field."""
    details = {"causes": [{"field": "spec.containers", "message": "Required value"}, {}]}
    script = refusal(422, "Invalid", 'Pod "a" is invalid: spec.containers', details=details)
    _, error = after(script, get_a)
    assert (error.status, error.reason) == (422, "Invalid")
    assert error.message == 'Pod "a" is invalid: spec.containers'
    assert error.causes[0] == ("spec.containers", "Required value")
    assert not error.retryable


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [
        (3, {}, 3.0),
        (None, {"retryAfterSeconds": 2}, 2.0),
        ("Wed, 21 Oct", {}, 0.0),
        (-1, {}, 0.0),
        (None, {"retryAfterSeconds": 10**9}, 300.0),
        ("9" * 400, {}, 300.0),
    ],
)
def test_wait_that_the_server_asks_for_is_said(header: Any, details: Any, expected: float) -> None:
    """Priority and fairness says when to come back; a date or nonsense counts as nothing."""
    script = refusal(429, "TooManyRequests", "slow down", retry_after=header, details=details)
    _, error = after(script, get_a)
    assert error.retryable
    assert error.retry_after == expected


@pytest.mark.parametrize(
    ("status", "body", "reason", "said"),
    [
        (404, b"404 page not found\n", "NotFound", "404 page not found"),
        (503, b"<html>\n <b>upstream</b></html>", "ServiceUnavailable", "<b>upstream</b>"),
        (502, b"", "Unknown", "no text"),
        (418, b"\xff\xfe", "Unknown", "418"),
        (500, b'"text"', "InternalError", "500"),
        (500, b'{"kind":"Pod"}', "InternalError", "500"),
    ],
)
def test_answers_of_somebody_else_are_errors_too(
    status: int, body: bytes, reason: str, said: str
) -> None:
    """A proxy or load balancer in front answers in HTML; a missing kind answers in plain text."""
    _, error = after(answer(status, body), get_a)
    assert (error.status, error.reason) == (status, reason)
    assert said in error.message


@pytest.mark.parametrize("body", [b"", b"{", b'{"metadata": 1}', b"<html>", b"\xff"])
def test_good_status_with_nonsense_is_an_error(body: bytes) -> None:
    """A captive portal answers 200 to everything."""
    _, error = after(answer(200, body), get_a)
    assert error.reason == "Malformed"
    assert error.status == 0


def test_redirect_is_an_error() -> None:
    """Following one would send the token to whoever answers."""
    _, error = after(answer(302, b"", Location="http://127.0.0.1:1/"), get_a)
    assert error.status == 302


def test_credentials_that_are_not_accepted_have_a_hint() -> None:
    """401 is the one refusal that no change of the objects can help."""
    _, error = after(refusal(401, "Unauthorized", "Unauthorized"), get_a)
    assert "credentials" in error.hint


# ------------------------------------------------------------------------------------- no answer


def test_connection_that_ends_without_an_answer_is_unreachable() -> None:
    """Whether the call was carried out is not known; the caller must look."""
    _, error = after(hangs_up, get_a)
    assert (error.status, error.reason, error.retryable) == (0, "Unreachable", True)
    assert "GET /api/v1/namespaces/ml/pods/a" in error.message


def test_half_of_an_answer_is_unreachable() -> None:
    """The server was killed while it answered."""

    async def half(_: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"metadata"')

    _, error = after(half, get_a)
    assert error.reason == "Unreachable"


def test_nobody_listening_is_unreachable() -> None:
    """The API server is being restarted."""

    async def scenario() -> KubeError:
        config = KubeConfig.from_server("http://127.0.0.1:1").get()
        assert config is not None
        client = open_client(config)
        with pytest.raises(KubeError) as caught:
            await get_a(client)
        await client.close()
        return caught.value

    error = asyncio.run(scenario())
    assert (error.status, error.reason) == (0, "Unreachable")
    assert "http://127.0.0.1:1" in error.message


def test_answer_that_does_not_come_has_a_limit() -> None:
    """A hung call would hold a worker of the operator for ever."""

    async def nothing(_: object, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    _, error = after(nothing, get_a, HttpOptions(answer_seconds=0.05))
    assert "ReadTimeout" in error.message


# ---------------------------------------------------------------------------- what is told


def test_warnings_of_the_server_are_handed_on() -> None:
    """'unknown field' in a Warning header is how a wrong manifest shows itself: to whoever watches
    the client, and to whoever made the call.
    """
    said: list[str] = []
    heard: list[str] = []
    script = answer(201, POD, Warning='299 - "unknown field \\"spec.x\\""')
    after(
        script,
        lambda client: client.create(PODS, "ml", {"metadata": {}}, warn=heard.append),
        HttpOptions(warn=said.append),
    )
    assert said == heard == ['unknown field "spec.x"']
