"""A distributed test in two lines: paddock.testing.ranks.

pytest examples/libraries/test_all_reduce.py
"""

import pytest
import torch
import torch.distributed as dist

from paddock.testing import ranks


@ranks(2)
def test_all_reduce():
    dist.init_process_group("gloo")
    total = torch.ones(3) * dist.get_rank()
    dist.all_reduce(total)
    assert total.tolist() == [1, 1, 1]
    dist.destroy_process_group()


@pytest.mark.parametrize("source", [0, 1])
@ranks(2)
def test_broadcast(source):
    dist.init_process_group("gloo")
    value = torch.tensor([dist.get_rank()])
    dist.broadcast(value, source)
    assert value.item() == source
    dist.destroy_process_group()
