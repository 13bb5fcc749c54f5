"""fleet.DistributedStrategy, the fields that concern parameter servers. Pure.

Source: paddlepaddle 2.6, fleet/base/distributed_strategy.py (a_sync, a_sync_configs) and
the_one_ps.py: a_sync False is sync; True is async, or geo where k_steps is above 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paddock.errors import Problem, UsageError

# What we act on; half_async and staleness are not Paddle's.
ACTED_ON = {"k_steps": int, "half_async": bool, "staleness": int}
# Paddle's own, about its communicator: there is nothing here that they could change.
WITHOUT_EFFECT = frozenset(
    (
        "max_merge_var_num", "send_queue_size", "independent_recv_thread",
        "min_send_grad_num_before_recv", "thread_pool_size", "send_wait_times",
        "runtime_split_send_recv", "launch_barrier", "heter_worker_device_guard",
        "lr_decay_steps", "use_ps_gpu", "use_gpu_graph",
    )
)  # fmt: skip


@dataclass
class DistributedStrategy:
    """Which of sync, async, geo, half_async or staleness the trainers follow.

    a_sync: False is sync, True (as in Paddle) is async. a_sync_configs: k_steps above 0 is geo
    with that many batches between exchanges; half_async True; staleness N.

    >>> strategy = DistributedStrategy()
    >>> strategy.a_sync_configs = {"k_steps": 100}
    >>> client_options(strategy)
    {'strategy': 'geo', 'geo_step': 100}
    """

    a_sync: bool = True
    a_sync_configs: dict[str, Any] = field(default_factory=dict)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses fields that are not there: a misspelt one would be a silent default."""
        if name not in ("a_sync", "a_sync_configs"):
            raise UsageError(
                f"DistributedStrategy has no field {name!r} for parameter servers",
                hint="a_sync and a_sync_configs; optimizers and tables have specs of their own",
            )
        if name == "a_sync" and not isinstance(value, bool):
            raise UsageError(f"a_sync is {value!r}", hint="True or False")
        if name == "a_sync_configs":
            value = dict(value)
            _check_configs(value)
        object.__setattr__(self, name, value)


def client_options(strategy: DistributedStrategy) -> dict[str, Any]:
    """The keywords of Client that follow from a strategy. Raises UsageError."""
    configs = strategy.a_sync_configs
    steps, lag = configs.get("k_steps", 0), configs.get("staleness")
    wanted = (
        (steps > 0, {"strategy": "geo", "geo_step": steps}),
        (configs.get("half_async"), {"strategy": "half_async"}),
        (lag is not None, {"strategy": "staleness", "staleness": lag}),
        (not strategy.a_sync, {"strategy": "sync"}),
    )
    chosen: list[dict[str, Any]] = [options for is_wanted, options in wanted if is_wanted]
    if len(chosen) > 1:
        names = " and ".join(options["strategy"] for options in chosen)
        raise UsageError(
            f"strategies {names} at once (a_sync={strategy.a_sync})", hint="choose one"
        )
    return chosen[0] if chosen else {"strategy": "async"}


def _check_configs(configs: Mapping[str, Any]) -> None:
    problems = []
    for name, value in configs.items():
        kind = ACTED_ON.get(name)
        if kind is None and name not in WITHOUT_EFFECT:
            known = ", ".join([*ACTED_ON, *sorted(WITHOUT_EFFECT)])
            problems.append(Problem(f"a_sync_configs: unknown field {name!r}", f"one of {known}"))
        elif kind is not None and not isinstance(value, kind):
            problems.append(Problem(f"a_sync_configs: {name} is {value!r}", kind.__name__))
    if problems:
        raise UsageError.of(problems)
    idle = sorted(WITHOUT_EFFECT & set(configs))
    if idle:
        warnings.warn(f"a_sync_configs: no effect here: {', '.join(idle)}", stacklevel=3)
