"""The script that each rank of ``paddock check --framework paddle`` runs; no module imports it.

    all_reduce_paddle.py DEVICE_KIND     ("cpu", or what each rank has one of)

import_module, because nothing of Paddock imports a framework or needs one to be type-checked.
"""

from __future__ import annotations

import sys
from importlib import import_module

if __name__ == "__main__":
    paddle = import_module("paddle")
    dist = import_module("paddle.distributed")
    if sys.argv[1] == "cpu":
        paddle.set_device("cpu")
    elif sys.argv[1] == "gpu" and not paddle.device.is_compiled_with_cuda():
        sys.exit(
            "this build of Paddle has no CUDA, the machine has GPUs: launch with --devices cpu"
        )
    dist.init_parallel_env()
    total = paddle.to_tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    if float(total.item()) != 3.0:
        sys.exit(f"the all-reduce of 1 and 2 gave {float(total.item())}")
    if dist.get_rank() == 0:
        device = paddle.device.get_device().partition(":")[0]
        sys.stdout.write(f"\npaddock-check {device} {dist.get_backend().lower()}\n")
