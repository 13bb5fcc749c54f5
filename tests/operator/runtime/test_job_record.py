"""What is remembered of a job between two looks: writes not yet seen, and refused calls."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_memory.patches import merged
from paddock.kube.client import KubeError
from paddock.kube.objects import NOBODY, Meta, OwnerReference, Pod
from paddock.operator.decision import OF_FORMER, Create, Delete
from paddock.operator.runtime.executor import canonical, merge_change
from paddock.operator.runtime.job_record import (
    EXPIRY_SECONDS,
    PAUSE_MAX_SECONDS,
    Expectations,
    FailedCalls,
    explain_conflict,
)

if TYPE_CHECKING:
    from paddock.operator.decision import Action


TAKEN = "AlreadyExists"


def pod(name: str = "a", uid: str = "1", *, going: bool = False) -> Pod:
    """A pod of the cache."""
    return Pod(
        Meta(name=name, uid=uid, deletionTimestamp="2027-01-01T00:00:00Z" if going else None)
    )


def test_a_creation_is_open_until_the_object_is_seen() -> None:
    """Otherwise the next look would make the pod again."""
    expectations = Expectations()
    expectations.expect("create", "Pod", "a", 0.0)
    expectations.see("Service", None, pod())
    assert expectations.wait_seconds(1.0) == EXPIRY_SECONDS - 1.0
    expectations.see("Pod", None, pod())
    assert expectations.wait_seconds(1.0) == 0.0


@pytest.mark.parametrize(("old", "new"), [(pod(), None), (pod(), pod(going=True))])
def test_a_deletion_is_seen_when_it_goes_or_is_gone(old: Pod, new: Pod | None) -> None:
    """Pods take their grace period to go; nobody waits for that here."""
    expectations = Expectations()
    expectations.expect("delete", "Pod", "1", 0.0)
    expectations.see("Pod", old, pod())
    assert expectations.wait_seconds(0.0) > 0
    expectations.see("Pod", old, new)
    assert expectations.wait_seconds(0.0) == 0.0


def test_a_change_is_seen_or_the_object_is_gone() -> None:
    """A pod that was deleted by somebody else meanwhile must not hold up the job."""
    expectations = Expectations()
    expectations.expect("change", "Pod", "a", 0.0)
    expectations.see("Pod", pod(), None)
    assert len(expectations) == 0


def test_what_is_expected_expires() -> None:
    """A watch that missed something must not hold up a job for ever."""
    expectations = Expectations()
    expectations.expect("create", "Pod", "a", 0.0)
    expectations.expect("create", "Pod", "b", 10.0)
    assert expectations.wait_seconds(EXPIRY_SECONDS) == 10.0
    assert expectations.wait_seconds(EXPIRY_SECONDS + 10.0) == 0.0
    assert len(expectations) == 0


def create(name: str, kind: Any = "Pod") -> Create:
    """An action."""
    return Create(kind, name, {})


def refusal(reason: str = "Forbidden", retry_after: float = 0.0) -> KubeError:
    """An error."""
    return KubeError("no", status=403, reason=reason, retry_after=retry_after)


def record(faults: FailedCalls, action: Action, error: KubeError, at: float) -> None:
    """Refused at that monotonic time."""
    faults.record(action, error, now=at + 1000.0, monotonic=at)


def test_a_quota_holds_up_every_pod_and_nothing_else() -> None:
    """A hundred pods over quota must be one refused call at a time, not a hundred."""
    faults = FailedCalls(Random(0))
    record(faults, create("a"), refusal(), 0.0)
    assert faults.hold(create("a"), 0.5)
    assert faults.hold(create("b"), 0.5)
    assert not faults.hold(create("b", "Service"), 0.5)
    assert not faults.hold(Delete("Pod", "b", "1"), 0.5)
    assert not faults.hold(create("b"), 2.0)


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        (
            OwnerReference(apiVersion="batch.paddlepaddle.org/v1", kind="PaddleJob", name="demo"),
            OF_FORMER,
        ),
        (OwnerReference(apiVersion="batch.paddlepaddle.org/v1", kind="PaddleJob", name="x"), TAKEN),
        (OwnerReference(apiVersion="kubeflow.org/v1", kind="PaddleJob", name="demo"), TAKEN),
        (OwnerReference(apiVersion="apps/v1", kind="ReplicaSet", name="demo"), TAKEN),
        (NOBODY, TAKEN),
    ],
)
def test_what_a_deleted_job_leaves_is_nobodys_theft(owner: OwnerReference, reason: str) -> None:
    """It goes by itself: people who delete a job and apply it anew have nothing to mend."""
    assert explain_conflict(refusal(TAKEN), owner, "demo").reason == reason
    other = explain_conflict(refusal("Forbidden"), owner, "demo")
    assert other.reason == "Forbidden"


@pytest.mark.parametrize("reason", [TAKEN, OF_FORMER])
def test_a_name_that_is_taken_holds_up_that_object_only(reason: str) -> None:
    """Somebody's pod of our third pod's name says nothing about the fourth."""
    faults = FailedCalls(Random(0))
    record(faults, create("a"), refusal(reason), 0.0)
    assert faults.hold(create("a"), 0.5)
    assert not faults.hold(create("b"), 0.5)


def test_pauses_of_faults_double_up_to_a_limit() -> None:
    """A refusal that lasts for days must not become a load, nor be found out too late."""
    faults = FailedCalls(Random(0))
    waits = []
    for _ in range(12):
        record(faults, create("a"), refusal(), 0.0)
        waits.append(faults.wait_seconds(0.0) or 0.0)
    assert 1.0 <= waits[0] <= 1.2
    assert waits[:6] == sorted(waits[:6])
    assert PAUSE_MAX_SECONDS <= waits[-1] <= PAUSE_MAX_SECONDS * 1.2
    assert faults.all()[0].count == 12


def test_a_server_that_says_when_is_obeyed() -> None:
    """Retry-After is longer than our own pause: coming sooner would make it worse."""
    faults = FailedCalls(Random(0))
    record(faults, create("a"), refusal("TooManyRequests", 30.0), 0.0)
    (fault,) = faults.all()
    assert faults.wait_seconds(0.0) == 30.0
    assert fault.retry_at - fault.at == 30.0


def test_faults_go_when_the_call_succeeds_or_is_no_longer_wanted() -> None:
    """What is over must not be shown as the reason of anything."""
    faults = FailedCalls(Random(0))
    for name in ("a", "b", "c"):
        record(faults, create(name), refusal(), 0.0)
    faults.succeed(create("a"))
    assert [f.name for f in faults.all()] == ["b", "c"]
    faults.keep([create("c"), create("d")])
    assert [f.name for f in faults.all()] == ["c"]
    faults.keep([])
    assert faults.wait_seconds(0.0) is None


def test_a_fault_past_its_time_does_not_make_the_queue_spin() -> None:
    """It was given up behind another one in that pass; the next pass is that other's."""
    faults = FailedCalls(Random(0))
    record(faults, create("a"), refusal(), 0.0)
    record(faults, create("b"), refusal(), 10.0)
    wait = faults.wait_seconds(10.5)
    assert wait is not None and wait >= 0.5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), JSON, max_size=4)


@given(OBJECTS, OBJECTS)
def test_the_change_makes_the_old_status_into_the_new_one(
    old: dict[str, object], new: dict[str, object]
) -> None:
    """Whatever was there: fields that went, objects that became texts, nulls in lists."""
    before, after = canonical(old), canonical(new)
    assert merged(before, merge_change(before, after)) == after


@given(OBJECTS)
def test_an_equal_status_is_no_change(value: dict[str, object]) -> None:
    """Nothing may be written for nothing."""
    assert merge_change(canonical(value), canonical(value)) == {}
