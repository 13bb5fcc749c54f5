"""What Ray is asked for, and what its answers mean."""

from __future__ import annotations

import pytest

from paddock.backends.ray.plan import (
    address_of,
    bundle_of,
    lack,
    plan_of,
    strategy_of,
    targets_of,
)
from paddock.backends.ray.relay import refusal
from paddock.backends.types import Site, Submission
from paddock.errors import UsageError
from paddock.jobfile.parse import parse

NODES = [
    {"name": "h1", "resources": {"CPU": 8.0, "GPU": 4.0}},
    {"name": "h2", "resources": {"CPU": 8.0, "GPU": 4.0}},
    {"name": "login", "resources": {"CPU": 0.0}},
]


def submission(*words: str, **options: object) -> Submission:
    """Of a script on two nodes; options are the site's."""
    given = ["--nnodes", "2", *words, "train.py"]
    job = parse(given, {}, python="python3").job
    return Submission(
        "train-1a2b", "train", Site("lab", "ray", options), job, token="secret-key", has_ps=False
    )


def test_each_node_has_a_core_for_each_process_and_the_devices_asked_for() -> None:
    """Ray counts what it gives: nothing is taken that was not asked for."""
    assert bundle_of(submission()) == {"CPU": 1.0}
    assert bundle_of(submission("--nproc-per-node", "4")) == {"CPU": 4.0}
    assert bundle_of(submission("--nproc-per-node", "4", cpus=32, gpus=4)) == {
        "CPU": 32.0, "GPU": 4.0,
    }  # fmt: skip
    assert bundle_of(submission(gpus="NPU=8")) == {"CPU": 1.0, "NPU": 8.0}
    assert bundle_of(submission(gpus=0)) == {"CPU": 1.0}


def test_keys_that_mean_nothing_are_refused_with_what_would() -> None:
    """Before Ray is asked."""
    with pytest.raises(UsageError, match="gpus = 'many' is not a number of devices"):
        bundle_of(submission(gpus="many"))
    with pytest.raises(UsageError, match="placement = 'tight'") as caught:
        strategy_of(Site("lab", "ray", {"placement": "tight"}))
    assert "spread or pack" in caught.value.problems[0].hint
    for text in ("local", "h1", "ray://h1"):  # `local` would start a Ray of its own
        with pytest.raises(UsageError, match=f"address = '{text}'") as caught:
            address_of(Site("lab", "ray", {"address": text}))
        assert "HOST:PORT" in caught.value.problems[0].hint
    assert address_of(Site("lab", "ray", {"address": "ray://h1:10001"})) == "ray://h1:10001"


def test_a_cluster_that_can_never_give_it_is_told_from_a_busy_one() -> None:
    """By what its nodes have in all; packed bundles may share a node."""
    bundle = {"CPU": 2.0, "GPU": 2.0}
    assert lack(bundle, 2, "STRICT_SPREAD", NODES) == ""
    assert lack(bundle, 4, "PACK", NODES) == ""
    assert lack(bundle, 3, "STRICT_SPREAD", NODES) == (
        "the job needs 3 nodes with 2 CPU, 2 GPU each, and Ray has 2 such nodes: h1 with 8 CPU,"
        " 4 GPU; h2 with 8 CPU, 4 GPU; login with 0 CPU, 0 GPU"
    )
    assert lack({"CPU": 1.0}, 1, "PACK", []) == (
        "the job needs 1 place with 1 CPU, and Ray has 0 such places: no node"
    )


def test_the_plan_says_what_ray_is_asked_for_and_holds_no_secret() -> None:
    """Which nodes it gives, Ray says only when it is asked."""
    plan = plan_of(submission("--nproc-per-node", "4", gpus=4, address="h1:6379"))
    assert plan.steps[0].what == "ask Ray (h1:6379) for 2 x 4 CPU, 4 GPU, STRICT_SPREAD"
    assert [row[1] for row in plan.rows] == ["Ray's node 0", "Ray's node 1"]
    assert len([step for step in plan.steps if step.argv]) == 2
    assert "secret-key" not in repr(plan)


def test_the_nodes_that_ray_has_given_are_in_the_order_of_its_bundles() -> None:
    """The Python is that of Ray's workers, unless the site names one."""
    rows = [
        {"name": f"h{n}", "address": f"10.0.0.{n}", "node": f"id{n}", "holder": f"j/{n}",
         "python": "/ray/python"}
        for n in (2, 1)
    ]  # fmt: skip
    found = targets_of(submission(), "h1:6379", rows)
    assert [(each.name, each.address, each.python) for each in found] == [
        ("h2", "10.0.0.2", "/ray/python"), ("h1", "10.0.0.1", "/ray/python"),
    ]  # fmt: skip
    assert targets_of(submission(interpreter="/my/py"), "a", rows)[0].python == "/my/py"
    words = found[0].connect_args("", "/usr/bin/python3")
    assert words[:3] == ("/usr/bin/python3", "-m", "paddock.backends.ray.client")
    assert words[3:] == ("h1:6379", "h2", "id2", "j/2", "10")


def test_a_broken_connection_says_what_the_relay_said() -> None:
    """The pipe's last line: what is wrong, a tab, what to do."""
    (target, _) = targets_of(
        submission(), "h1:6379",
        [{"name": n, "address": "", "node": "", "holder": "", "python": "py"} for n in "ab"],
    )  # fmt: skip
    assert target.failure(2, "noise\nRay has lost the node a\tray status\n") == (
        "Ray has lost the node a", "ray status",
    )  # fmt: skip
    what, hint = target.failure(97, "/usr/bin/python3 is Python 3.9\n")
    assert "no py is there" in what and "--interpreter" in hint


def test_another_python_on_the_cluster_is_named_with_both_versions() -> None:
    """Ray's own text has five lines; a refused connection is told from it."""
    said = (
        "Version mismatch: The cluster was started with:\n    Ray: 2.60.0\n    Python: 3.12.1\n"
        "This process on 10.0.0.9 was started with:\n    Ray: 2.59.0\n    Python: 3.11.7\n"
    )
    error = refusal("auto", said)
    assert "the Ray cluster runs Ray 2.60.0 on Python 3.12.1" in error.message
    assert "paddock has Ray 2.59.0 on Python 3.11.7" in error.message
    assert "Python 3.12.1 with ray==2.60.0" in error.hint
    assert "h1:6379 cannot be reached: no" in refusal("h1:6379", "no\nmore").message
