"""A Net of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed, nn
from torch.nn import functional

from paddock.ps import torch as ps_torch
from paddock.ps.spec import OptimizerSpec
from paddock.rec.data_parallel import AllReduceGroup
from paddock.rec.models.net import Net


class TorchNet(Net):
    """device: "cpu", "cuda", ... of the dense parameters and of the rows of a batch."""

    framework = ps_torch.TORCH
    name = "torch"
    functional, no_grad = functional, staticmethod(torch.no_grad)
    batch_norm_layer, embedding_layer = nn.BatchNorm2d, ps_torch.Embedding
    relu, sigmoid = staticmethod(torch.relu), staticmethod(torch.sigmoid)
    softmax = staticmethod(torch.softmax)
    class_loss = staticmethod(functional.cross_entropy)
    binary_loss = staticmethod(functional.binary_cross_entropy_with_logits)
    concat = staticmethod(torch.cat)

    def __init__(
        self, client: Any, rule: OptimizerSpec, seed: int, *, device: str = "cpu", threads: int = 1
    ) -> None:
        super().__init__(client, rule, seed)
        torch.manual_seed(seed)
        torch.set_num_threads(threads)
        self.device = torch.device(device)
        self.root = nn.Module()
        self.like = torch.empty(0, device=self.device)

    def tensor(self, array: NDArray[Any]) -> torch.Tensor:
        """The array on the device, with its shape and dtype: int64 or float32."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def trainer(self) -> ps_torch.Trainer:
        self.root.to(self.device)
        return ps_torch.Trainer(self.client, self.root, optimizer=self.rule)

    def state(self) -> dict[str, Any]:
        return {name: one.cpu().numpy().copy() for name, one in self.root.state_dict().items()}

    def save_state(self, state: dict[str, Any], path: str) -> None:
        try:
            torch.save({name: torch.from_numpy(one) for name, one in state.items()}, path)
        except RuntimeError as error:  # What torch makes of a full disk.
            raise OSError(str(error)) from error

    def read_state(self, path: str) -> dict[str, Any]:
        return {n: one.numpy() for n, one in torch.load(path, weights_only=True).items()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.root.load_state_dict({name: torch.from_numpy(one) for name, one in state.items()})

    def _linear(self, weight: NDArray[Any], bias: NDArray[Any]) -> nn.Linear:
        # torch keeps (outputs, inputs).
        return _with(nn.Linear(*weight.shape, device="meta"), weight=weight.T, bias=bias)

    def _conv(self, weight: NDArray[Any], stride: int) -> nn.Conv2d:
        outputs, inputs, size, _ = weight.shape
        options = {"stride": stride, "padding": size // 2, "bias": False, "device": "meta"}
        return _with(nn.Conv2d(inputs, outputs, size, **options), weight=weight)

    def _parameter(self, name: str, first: NDArray[Any]) -> nn.Parameter:
        parameter = nn.Parameter(torch.from_numpy(first))
        self.root.register_parameter(name, parameter)
        return parameter


def _with(layer: nn.Module, **values: NDArray[Any]) -> nn.Module:
    """The layer with these values, without torch's own first ones."""
    for name, value in values.items():
        setattr(layer, name, nn.Parameter(torch.from_numpy(np.ascontiguousarray(value))))
    return layer


class TorchGroup(AllReduceGroup):
    """All processes of a job of `paddock launch`, on their processors."""

    def __init__(self) -> None:
        distributed.init_process_group("gloo")  # Of RANK, WORLD_SIZE and MASTER_ADDR.
        super().__init__(distributed)

    def add(self, numbers: NDArray[Any]) -> None:
        """Adds up (n,) float32 or float64 over all copies, in place."""
        distributed.all_reduce(torch.from_numpy(numbers))


NET, GROUP = TorchNet, TorchGroup
GPU = "cuda"


def has_gpu() -> bool:
    """PyTorch sees a GPU."""
    return bool(torch.cuda.is_available())
