"""What both peer scripts need of PaddlePaddle 2.6.2: the roles, the program, one op of it.

Runs under the peer's Python, 3.8 to 3.12.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

BEGAN = time.monotonic()
os.environ.setdefault("CPU_NUM", "1")  # threads of train_from_dataset

import numpy as np  # noqa: E402
import paddle  # noqa: E402
from paddle.distributed import fleet  # noqa: E402
from paddle.distributed.fleet.base import role_maker  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
SERVERS = [int(word) for word in os.environ.get("BENCH_SERVER_PIDS", "").split()]


def begin() -> None:
    """Static mode, and the role that the environment says."""
    paddle.enable_static()
    paddle.seed(7)
    fleet.init(role_maker.PaddleCloudRoleMaker())


def embed(ids: Any, dim: int) -> Any:
    """A sparse embedding of the one table that all slots share, with small uniform values."""
    initial = paddle.nn.initializer.Uniform(-1e-3, 1e-3)
    attribute = paddle.ParamAttr(name="emb", initializer=initial)
    return paddle.static.nn.sparse_embedding(ids, size=[10, dim], param_attr=attribute)


def minimize(loss: Any, optimizer: Any, *, rule: str, dim: int, rate: float) -> None:
    """Hand the program to fleet, asynchronous. rule: the table's; "" is what fleet chooses."""
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    if rule:
        strategy.fleet_desc_configs = {
            "emb": {
                "sparse_table_class": "DownpourSparseTable",
                "sparse_accessor_class": "DownpourCtrAccessor",
                "sparse_optimizer": rule,
                # Of the dim columns the accessor calls 1 embed_w and keeps 2 statistics.
                "sparse_embedx_dim": dim - 3,
                "sparse_embedx_threshold": 0,
                "sparse_learning_rate": rate,
                "sparse_initial_range": 1e-3,
            }
        }
    fleet.distributed_optimizer(optimizer, strategy).minimize(loss)


def serve_if_server() -> None:
    """A server stays here until it is killed."""
    if fleet.is_server():
        fleet.init_server()
        print(f"SERVER {time.monotonic() - BEGAN:.2f}", flush=True)
        fleet.run_server()
        sys.exit(0)


def begin_worker() -> Any:
    """The executor of a trainer that is connected to its servers."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    return executor


def only(kinds: set) -> Any:
    """The main program with nothing but the ops of these kinds."""
    program = paddle.static.default_main_program().clone()
    block = program.global_block()
    for index in reversed(range(len(block.ops))):
        if block.ops[index].type not in kinds:
            block._remove_op(index)
    program._fleet_opt = None
    return program


def op_of(kind: str) -> Any:
    """The first op of a kind in the main program."""
    ops = paddle.static.default_main_program().global_block().ops
    return next(op for op in ops if op.type == kind)


def say(name: str, **measured: Any) -> None:
    """One line for the driver."""
    print("M " + json.dumps({"name": name, **measured}), flush=True)


def servers_cpu_seconds() -> float:
    """CPU time of all servers."""
    total = 0
    for pid in SERVERS:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def servers_resident_mb() -> float:
    """RSS of all servers, MiB."""
    total = 0
    for pid in SERVERS:
        with open(f"/proc/{pid}/status") as status:
            total += sum(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
    return total / 1024


class Clock:
    """Wall time of each call, and CPU time of both sides over all of them."""

    def __init__(self) -> None:
        self.samples = []  # type: list[float]
        self._began, self._own = time.perf_counter(), time.process_time()
        self._servers = servers_cpu_seconds()

    def call(self, function: Any, *args: Any, **kwargs: Any) -> None:
        """Call and time."""
        at = time.perf_counter()
        function(*args, **kwargs)
        self.samples.append(time.perf_counter() - at)

    def result(self, calls: int = 0) -> dict:
        """ms, p99_ms of one call; each_ms: all the time until now by ``calls``; cores used."""
        wall = time.perf_counter() - self._began
        return {
            "ms": 1e3 * float(np.median(self.samples)),
            "p99_ms": 1e3 * float(np.quantile(self.samples, 0.99)),
            "each_ms": 1e3 * wall / (calls or len(self.samples)),
            "server_cores": (servers_cpu_seconds() - self._servers) / wall,
            "client_cores": (time.process_time() - self._own) / wall,
        }
