"""Sum over all ranks with PyTorch, the example of README.md.

paddock launch --nproc-per-node 2 examples/torch_sum.py
"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # on GPUs: "nccl"
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {total.item():.0f}")
dist.destroy_process_group()
