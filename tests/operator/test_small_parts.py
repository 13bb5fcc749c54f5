"""Names, numbers, quantities and the status: what is written is read back as it was."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.kube.objects import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    KubeCondition,
    Meta,
    PaddleJob,
    Pod,
    PodStatus,
)
from paddock.operator import names
from paddock.operator.decision import ObservedState
from paddock.operator.outcome import outcome_of, with_last_end
from paddock.operator.quantity import add_quantities, form_of, read_quantity, write_quantity
from paddock.operator.read_spec import read_spec
from paddock.operator.schema import REPLICAS_MAX
from paddock.operator.spec import ROLES, JobSpec
from paddock.operator.status import (
    ControllerState,
    ParsedStatus,
    StatusInput,
    read_indexes,
    read_status,
    write_indexes,
    write_status,
)

if TYPE_CHECKING:
    from paddock.operator.spec import RoleName

TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
roles: st.SearchStrategy[RoleName] = st.sampled_from(ROLES)
job_names = st.from_regex(r"\A[a-z]([-a-z0-9]{0,20}[a-z0-9])?\Z")
seconds = st.integers(0, 4_000_000_000).map(float)
counts = st.integers(0, 2**31 - 1)


@settings(max_examples=30)
@given(job_names, roles, st.integers(0, 10**6))
def test_a_pods_name_says_which_replica_it_is(job: str, role: RoleName, index: int) -> None:
    """The only thing that is read of a pod's name; a job called a-worker-1 is no exception."""
    name = names.pod_name(job, role, index)
    assert names.replica_of(job, name) == (role, index)


@pytest.mark.parametrize(
    "name", ["demo-worker", "demo-worker-", "demo-worker-01", "demo-worker-1-", "demo-worker-²",
             "demo-master-0", "other-worker-0", "demo-worker-0-worker-0", ""],
)  # fmt: skip
def test_other_names_are_no_replicas(name: str) -> None:
    """Nobody may slip a pod in by a name that looks like one of ours."""
    assert names.replica_of("demo", name) is None


@given(st.sets(st.integers(0, 200)))
def test_numbers_are_read_back(indexes: set[int]) -> None:
    """completedIndexes is the memory of which replicas have succeeded."""
    assert read_indexes(write_indexes(indexes)) == indexes


@given(st.text(alphabet="0123456789-,x", max_size=12))
def test_any_text_is_read_as_some_numbers(text: str) -> None:
    """A status may be written by anybody."""
    assert all(0 <= index < REPLICAS_MAX for index in read_indexes(text))


@pytest.mark.parametrize(
    "text", ["9" * 5000 + "-1", "0-1000000", ",".join(["0-9999"] * 1000), "0," * 10**6]
)
def test_no_text_keeps_the_operator_busy(text: str) -> None:
    """One job whose status said 0-1000000 thirty times held up the jobs of everybody else."""
    assert len(read_indexes(text)) <= REPLICAS_MAX


@given(st.integers(0, 10**15), st.integers(0, 9))
def test_quantities_are_exact(digits: int, decimals: int) -> None:
    """A PodGroup that asks for a little less than its pods is never scheduled."""
    amount = Fraction(digits, 10**decimals)
    for form in ("decimal", "binary", "exponent"):
        assert read_quantity(write_quantity(amount, form)) == amount


# What apimachinery v0.34.4 makes of the text on the left: ParseQuantity, Add of zero, String.
CANONICAL = (
    "200000000=200M 1000m=1 1024Mi=1Gi 0.5=500m 1.5Gi=1536Mi 1e3=1e3 1E3=1e3 1E=1E "
    "1536=1536 1000=1k 2048Ki=2Mi 1500k=1500k 0.1Ki=102400m 1.1Ki=1126400m "
    "5e-1=500e-3 12000m=12 0.0000000001=1n 1.0=1 10000000000000=10T 1025=1025 0Gi=0 "
    "0e3=0 0.5Gi=512Mi 4000000000n=4 94.367T=94367G"
)


@pytest.mark.parametrize("pair", CANONICAL.split())
def test_quantities_are_written_as_kubernetes_writes_them(pair: str) -> None:
    """A scheduler that writes the whole object puts them into this form."""
    text, wanted = pair.split("=")
    assert write_quantity(read_quantity(text), form_of(text)) == wanted


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 50))
def test_quantities_add_up(first: int, second: int, times: int) -> None:
    """minResources is a sum over all pods."""
    total = add_quantities({"cpu": f"{first}m"}, {"cpu": f"{second}m"}, times=times)
    assert read_quantity(total["cpu"]) == Fraction(first + times * second, 1000)


@pytest.mark.parametrize("text", ["", "much", "1 Gi", "1/2", "1_0", "1e9999", "9" * 80, "1kk"])
def test_other_words_are_no_quantities(text: str) -> None:
    """They are left out of sums: the API server refuses the pod and says which field it is."""
    with pytest.raises(ValueError, match=r"quantity|Invalid literal"):
        read_quantity(text)
    assert add_quantities({"cpu": "1"}, {"cpu": text}) == {"cpu": "1"}


states = st.builds(
    ControllerState,
    attempt=counts, started_attempt=st.integers(-1, 100), attempt_start_time=seconds,
    next_attempt_time=seconds, counted_failures=counts, restarts=counts, disruptions=counts,
    start_time=seconds, completion_time=seconds, host_port=counts,
    done=st.frozensets(st.tuples(roles, st.integers(0, 9))),
    last_failure=st.sampled_from([{}, {"pod": "a", "finishedAt": "2026-01-01T00:00:00Z"}]),
    restart_reason=st.text(max_size=9), replacing=st.frozensets(st.text(min_size=1, max_size=4)),
)  # fmt: skip


@settings(max_examples=60)
@given(states)
def test_the_memory_of_the_operator_survives_in_the_status(state: ControllerState) -> None:
    """It is kept nowhere else: what is not read back is forgotten with the process."""
    given = StatusInput("Running", "", "", state, three_roles())
    status = write_status(given, ObservedState(PaddleJob()), ParsedStatus(), 0.0)
    assert read_status(status).state == state


def test_times_before_1970_are_none() -> None:
    """Go writes its time 0 as the year 1: written back without zeros, the status was refused."""
    raw = {"startTime": "0001-01-01T00:00:00Z", "nextAttemptTime": "1969-12-31T23:59:59Z"}
    assert read_status(raw).state == ControllerState()


@pytest.mark.parametrize(("phase", "restarts"), [("Pending", 4), ("Running", 1)])
def test_init_containers_are_counted_until_the_pod_runs(phase: str, restarts: int) -> None:
    """One that fails for ever never lets the pod run; a sidecar is not the program."""
    ended = ContainerState(terminated=ContainerStateTerminated(2, message="no data"))
    pod = Pod(status=PodStatus(
        phase,
        initContainerStatuses=(ContainerStatus("init", restartCount=3, lastState=ended),),
        containerStatuses=(ContainerStatus("main", restartCount=1),),
    ))  # fmt: skip
    outcome = outcome_of(pod, "worker", 0)
    assert outcome.restarts == restarts
    assert ("no data" in with_last_end(outcome, pod).why) == (phase == "Pending")


def test_a_container_whose_former_one_is_removed_already_is_told_by_its_own_end() -> None:
    """A kubelet keeps the last dead container of each, and may have counted the next start."""
    ended = ContainerState(terminated=ContainerStateTerminated(2, message="no data"))
    again = ContainerStatus("main", restartCount=1, state=ended)
    pod = Pod(status=PodStatus("Running", containerStatuses=(again,)))
    worn = with_last_end(outcome_of(pod, "worker", 0), pod)
    assert (worn.exit_code, worn.why) == (2, "exit code 2 (no data)")


@pytest.mark.parametrize(("told", "state"), [("38", "lost"), ("40", "succeeded")])
def test_a_pod_that_was_evicted_before_it_ended_is_no_success(told: str, state: str) -> None:
    """Kueue's finalizer keeps it past its kubelet's last delete, which moves deletionTimestamp.

    The times are those of a pod of Kueue 0.17 on Kubernetes 1.34 that exits 0 on SIGTERM.
    """
    ended = ContainerStateTerminated(0, reason="Completed", finishedAt="2026-11-24T16:29:39Z")
    evicted = KubeCondition("DisruptionTarget", "True", "EvictionByEvictionAPI",
                        lastTransitionTime=f"2026-11-24T16:29:{told}Z")  # fmt: skip
    pod = Pod(
        Meta(deletionTimestamp="2026-11-24T16:29:41Z", deletionGracePeriodSeconds=0),
        status=PodStatus(
            "Succeeded", conditions=(evicted,),
            containerStatuses=(ContainerStatus("main", state=ContainerState(terminated=ended)),),
        ),
    )  # fmt: skip
    assert outcome_of(pod, "worker", 0).state == state


def three_roles() -> JobSpec:
    """A job with every role."""
    role = {"replicas": 10, "template": TEMPLATE}
    spec, _ = read_spec("a", dict.fromkeys(ROLES, role))
    assert spec is not None
    return spec


def test_a_pods_own_reason_is_told_before_its_exit_code() -> None:
    """Its activeDeadlineSeconds ended it, and `exit code 2` sent people to the program's log."""
    ended = ContainerState(terminated=ContainerStateTerminated(exitCode=2))
    statuses = (ContainerStatus(name="main", state=ended),)
    status = PodStatus("Failed", "DeadlineExceeded", "Pod was too long", containerStatuses=statuses)
    outcome = outcome_of(Pod(status=status), "worker", 0)
    assert (outcome.cause, outcome.exit_code) == ("ExitCode", 2)
    assert outcome.why == "DeadlineExceeded: Pod was too long (exit code 2)"
