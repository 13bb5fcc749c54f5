"""The script that each rank of ``paddock check --framework torch`` runs; no module imports it.

    all_reduce_torch.py DEVICE_KIND     ("cpu", or what each rank has one of)

import_module, because nothing of Paddock imports a framework or needs one to be type-checked.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

if __name__ == "__main__":
    torch = import_module("torch")
    dist = import_module("torch.distributed")
    is_cuda = sys.argv[1] == "gpu" and torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if is_cuda else torch.device("cpu")
    dist.init_process_group("nccl" if is_cuda else "gloo")
    total = torch.tensor([dist.get_rank() + 1.0], device=device)
    dist.all_reduce(total)
    if total.item() != 3.0:
        sys.exit(f"the all-reduce of 1 and 2 gave {total.item()}")
    if dist.get_rank() == 0:
        sys.stdout.write(f"\npaddock-check {device.type} {dist.get_backend()}\n")
    dist.destroy_process_group()
