"""A rank of torch (gloo) that stops in its own code after BENCH_AT steps, if it is BENCH_CULPRIT.

BENCH_HOW: what it does then: sleep, loop, lock (one that it holds itself) or pipe (an empty one).
"""

import os
import threading
import time

import torch
import torch.distributed as dist
from stamp import RANK, stamp


def read_the_wrong_shard(how: str) -> None:
    """Never return."""
    stamp("stuck")
    if how == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    if how == "pipe":
        os.read(os.pipe()[0], 1)
    while how == "loop":
        pass
    while True:
        time.sleep(0.01)


dist.init_process_group("gloo")
gradient = torch.ones(1000)
stamp("up")
step = 0
while True:
    if step == int(os.environ["BENCH_AT"]) and int(os.environ["BENCH_CULPRIT"]) == RANK:
        read_the_wrong_shard(os.environ["BENCH_HOW"])
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()
    time.sleep(0.1)
    if step % 10 == 0 and RANK == 0:
        print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
    step += 1
