"""PaddleJobs that nobody should write, by seed: documented ones with anything changed in them.

Also the cases of the issue that random changes would seldom meet (ODD). Read by tests/operator,
where they come to the operator as they are, and by tests/cluster, where an API server judges first.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from paddlejobs import DOCUMENTED, FULL, job, pod, role

if TYPE_CHECKING:
    from random import Random

CHANGES_MAX = 3
DEPTH_STOP = 0.07  # chance to change a mapping or a list itself, and not something in it
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 255, 256, 10_000, 100_000, 2**31, 2**63, 1.5, -1e300,
    "", " ", "x", "1", "1Gi", "-5", "true", "Always", "Host", "名字", "a" * 64, "A_b.c", "../../x",
    "$(POD_IP)", "\n\t", "\u0000", "\U0001f680", [], [None], [[]], ["a", 1], {}, {"": ""},
    {"a": {"b": {"c": [1]}}}, [{"name": "x"}], [{"name": "x"}, {"name": "x"}],
)  # fmt: skip
KEYS = (
    "replicas", "template", "spec", "containers", "restartPolicy", "elastic", "requests", "limits",
    "intranet", "suspend", "worker", "ps", "hostNetwork", "nodeName", "env", "x", "", "名",
)  # fmt: skip
NAMES = ("a", "a.b", "a" * 63, "a" * 64, "1a", "-a", "A", "名字", "a-worker-0", "x" * 250)
LABELS: tuple[Any, ...] = (
    {}, {"kueue.x-k8s.io/queue-name": "q"}, {"kueue.x-k8s.io/queue-name": ""},
    {"batch.paddlepaddle.org/job-name": "other"}, {"a": "b"},
)  # fmt: skip


def _spec(**fields: Any) -> dict[str, Any]:
    """A job of one worker whose pod has these fields, and nothing else."""
    return {"spec": {"worker": {"replicas": 1, "template": {"spec": fields}}}}


_ONE = [{"name": "a", "image": "i"}]
_OURS = ("POD_IP", "PADDLE_TRAINER_ID", "PADDLE_PORT", "PADDOCK_GATE")
_MANY = [{"name": f"V{i}", "value": "v" * 200} for i in range(300)]
ODD: dict[str, dict[str, Any]] = {
    "no spec": {},
    "empty spec": {"spec": {}},
    "spec is null": {"spec": None},
    "spec is a list": {"spec": []},
    "spec is text": {"spec": "worker"},
    "no containers": _spec(containers=[]),
    "no template": {"spec": {"ps": {"replicas": 2}, "worker": {"replicas": 2}}},
    "no replicas": {"spec": {"worker": {"template": pod()}}},
    "zero": {"spec": {"worker": role(0)}},
    "negative": {"spec": {"worker": role(-3)}},
    "a hundred thousand": {"spec": {"worker": role(100_000)}},
    "ten thousand": {"spec": {"worker": role(10_000)}},
    "ten thousand elastic": {"spec": {"worker": {**role(1), "limits": 10_000}}},
    "above all limits": {"spec": {"worker": role(2**63)}},
    "huge environment": {"spec": {"worker": role(2, env=_MANY)}},
    "many containers": _spec(containers=[{"name": f"c{i}", "image": "i"} for i in range(100)]),
    "our own variables": {"spec": {"worker": role(2, env=[
        {"name": name, "value": "$(POD_IP)"} for name in _OURS
    ])}},
    "not a pod at all": _spec(containers=_ONE, restartPolicy="Sometimes", nodeName="no such"),
    "labels of ours": {"spec": {"worker": {"replicas": 1, "template": {
        "metadata": {"name": "mine", "namespace": "kube-system", "ownerReferences": [{"uid": "1"}],
                     "labels": {"paddle-res-name": "x", "batch.paddlepaddle.org/attempt": "7"}},
        **pod()}}}},
    "init containers are text": _spec(containers=_ONE, initContainers="none"),
    "status of its own": {"spec": {"worker": role(1)}, "status": {"phase": "Completed"}},
}  # fmt: skip


def fuzzed(rng: Random, name: str) -> dict[str, Any]:
    """A job of that name, or now and then of a worse one."""
    if rng.random() < 0.2:
        made = {**job(name), **copy.deepcopy(rng.choice(list(ODD.values())))}
        if rng.random() < 0.5:
            made.pop("status", None)
    else:
        base = rng.choice([*DOCUMENTED.values(), FULL])
        made = job(name, **copy.deepcopy(base["spec"]))
        for _ in range(rng.randrange(1, CHANGES_MAX + 1)):
            change(rng, made)
    if rng.random() < 0.1:
        made["metadata"]["labels"] = copy.deepcopy(rng.choice(LABELS))
    return made


def change(rng: Random, made: dict[str, Any]) -> None:
    """Change one thing somewhere below spec."""
    inside: Any = made
    key: Any = "spec"
    while isinstance(
        value := inside.get(key) if isinstance(inside, dict) else inside[key], (dict, list)
    ):
        if not value or rng.random() < DEPTH_STOP:
            break
        inside = value
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    what = rng.randrange(8)
    if what == 0 and isinstance(inside, dict) and inside is not made:
        inside.pop(key, None)
    elif what == 1 and isinstance(value, dict):
        value[rng.choice(KEYS)] = copy.deepcopy(rng.choice(VALUES))
    elif what == 2 and isinstance(inside, list):
        inside.append(copy.deepcopy(value))
    elif what < 6:  # of the same type: types alone are wrong soon enough
        same = [v for v in VALUES if type(v) is type(value)]
        inside[key] = copy.deepcopy(rng.choice(same or VALUES))
    else:
        inside[key] = copy.deepcopy(rng.choice(VALUES))
