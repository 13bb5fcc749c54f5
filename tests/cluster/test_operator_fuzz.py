"""200 jobs that nobody should write, through the real kubectl and API server, beside one good job.

There are no nodes here: a job that is accepted and sound has pods that wait for one.
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from cluster.control.operators import Operator, install
from cluster.jobs import JOBS_PATH, Place
from fuzzed import NAMES, fuzzed
from paddlejobs import job, role
from paddock.operator.schema import PHASES
from paddock.operator.spec import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.plane import ControlPlane

JOBS = 200
SEED = 5
PODS_MAX = 60  # of the namespace, by a quota: some of these jobs want 10,000
# "PaddleJob.batch... "x" is invalid: spec.withGloo: ..." or "strict decoding error: unknown field
# "spec.worker.x"": a field is named, or what was written is no name, or no job, at all.
NAMES_A_FIELD = re.compile(r'(spec|metadata|status)(\.|:|"|\[)|is not valid|invalid')


@pytest.fixture(scope="module")
def operator(plane: ControlPlane) -> Iterator[Operator]:
    """An operator on the control plane without nodes."""
    install(plane)
    with Operator(plane) as made:
        yield made


@pytest.fixture
def place(operator: Operator, plane: ControlPlane, namespace: str) -> Place:
    """A namespace in which there may not be very many pods."""
    place = Place(plane, namespace)
    place.kubectl("create", "quota", "few", f"--hard=pods={PODS_MAX}")
    counted = "--for=jsonpath={.status.used.pods}=0"
    place.kubectl("wait", counted, "quota/few", "--timeout=60s")
    return place


def refusals(place: Place, made: list[dict[str, Any]], *words: str) -> list[str]:
    """What kubectl says of those that the API server did not take."""
    # Not in ASCII: the pairs of escapes that JSON has beyond the basic plane are no YAML.
    text = "\n---\n".join(json.dumps(each, ensure_ascii=False) for each in made)
    done = place.plane.kubectl(
        "-n", place.namespace, "create", "-f", "-", *words, stdin=text, check=False
    )
    return [line for line in done.stderr.split("\nError ") if "Warning" not in line]


def listed(place: Place) -> dict[str, dict[str, Any]]:
    """Every job by its name."""
    _, body = place.plane.fetch(JOBS_PATH.format(place.namespace))
    return {found["metadata"]["name"]: found for found in json.loads(body)["items"]}


def is_answered(found: dict[str, Any]) -> bool:
    """Whether a job has pods, or a sentence that says why not."""
    status = found.get("status", {})
    return bool(status.get("message")) or any("refs" in status.get(r, {}) for r in ROLES)


def test_whatever_is_created_is_refused_by_field_or_gets_an_answer(
    place: Place, operator: Operator
) -> None:
    """Anybody may create a PaddleJob; two kinds of them stopped paddle-operator for everybody."""
    rng, pid = Random(SEED), operator.pid
    names = [f"job-{n}" if rng.random() < 0.95 else rng.choice(NAMES) for n in range(JOBS)]
    made = [fuzzed(rng, name) for name in dict.fromkeys(names)]
    place.make("good", worker=role(2))
    # As people use kubectl, and as clients do that check nothing.
    half = len(made) // 2
    said = refusals(place, made[:half]) + refusals(place, made[half:], "--validate=false")
    for line in said:
        assert NAMES_A_FIELD.search(line), line
    present = listed(place)
    assert len(said) > JOBS / 4 and len(present) > JOBS / 4
    assert len(present) - 1 + len(said) >= len(made)

    place.soon("every job has an answer", lambda: all(map(is_answered, listed(place).values())))
    for name, found in listed(place).items():
        status = found["status"]
        assert status["phase"] in PHASES, (name, found)
        assert {"Valid", "Running"} <= {c["type"] for c in status["conditions"]}, (name, found)
    assert place.wait("good", "Pending")["worker"]["pending"] == 2
    place.kubectl("delete", "pdj", "--all", "--wait=false")
    place.apply(job("later", worker=role(3)))
    place.wait("later", until=lambda s: s.get("worker", {}).get("pending") == 3)
    assert operator.pid == pid
    assert operator.bugs() == [], operator.tail()
