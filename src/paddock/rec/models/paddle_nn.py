"""A Net of PaddlePaddle 3, in dygraph."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import distributed, nn
from paddle.nn import functional
from paddle.utils import dlpack

from paddock.ps import paddle as ps_paddle
from paddock.ps.spec import OptimizerSpec
from paddock.rec.data_parallel import AllReduceGroup
from paddock.rec.models import paddle_private as private
from paddock.rec.models.net import Layer, Net
from paddock.rec.pickles import read_arrays


class PaddleNet(Net):
    """device: "cpu", "gpu", ... as paddle.set_device takes it."""

    framework = ps_paddle.PADDLE
    name = "paddle"
    functional, no_grad = functional, staticmethod(paddle.no_grad)
    batch_norm_layer, embedding_layer = nn.BatchNorm2D, ps_paddle.Embedding
    relu, sigmoid = staticmethod(functional.relu), staticmethod(functional.sigmoid)
    softmax = staticmethod(functional.softmax)
    class_loss = staticmethod(functional.cross_entropy)
    concat = staticmethod(paddle.concat)
    # Paddle 3.3.1's binary_cross_entropy_with_logits has a wrong gradient where a logit is 0:
    # -label - 0.5 in place of 0.5 - label. A model of zeros begins there.
    binary_loss = staticmethod(
        lambda logit, label: (functional.softplus(logit) - logit * label).mean()
    )

    def __init__(
        self, client: Any, rule: OptimizerSpec, seed: int, *, device: str = "cpu", threads: int = 1
    ) -> None:
        super().__init__(client, rule, seed)
        paddle.set_device(device)
        paddle.seed(seed)
        private.set_threads(paddle, threads)
        self.device = device
        self.root = nn.Layer()

    def tensor(self, array: NDArray[Any]) -> paddle.Tensor:
        """The array on the device, with its shape and dtype: int64 or float32."""
        if self.device == "cpu":
            return dlpack.from_dlpack(np.ascontiguousarray(array))
        return paddle.to_tensor(array)

    def trainer(self) -> ps_paddle.Trainer:
        return ps_paddle.Trainer(self.client, self.root, optimizer=self.rule)

    def state(self) -> dict[str, Any]:
        return {name: np.array(one.numpy()) for name, one in self.root.state_dict().items()}

    def save_state(self, state: dict[str, Any], path: str) -> None:
        paddle.save({name: paddle.to_tensor(one) for name, one in state.items()}, path)

    def read_state(self, path: str) -> dict[str, Any]:
        return read_arrays(path)

    def load_state(self, state: dict[str, Any]) -> None:
        self.root.set_state_dict(state)

    def _linear(self, weight: NDArray[Any], bias: NDArray[Any]) -> nn.Layer:
        return _with(nn.Linear(*weight.shape), weight=weight, bias=bias)

    def _conv(self, weight: NDArray[Any], stride: int) -> nn.Layer:
        outputs, inputs, size, _ = weight.shape
        layer = nn.Conv2D(inputs, outputs, size, stride, size // 2, bias_attr=False)
        return _with(layer, weight=weight)

    def batch_norm(self, name: str, channels: int) -> Layer:
        """A function of the layer's parts: the layer itself warns at every call in training."""
        layer = self.batch_norm_layer(channels)
        setattr(self.root, name, layer)
        parts = *private.statistics_of(layer), layer.weight, layer.bias
        return lambda x: functional.batch_norm(x, *parts, training=self.root.training)

    def _parameter(self, name: str, first: NDArray[Any]) -> paddle.Tensor:
        parameter = self.root.create_parameter(first.shape, dtype="float32")
        parameter.set_value(first)
        self.root.add_parameter(name, parameter)
        return parameter


def _with(layer: nn.Layer, **values: NDArray[Any]) -> nn.Layer:
    for name, value in values.items():
        getattr(layer, name).set_value(value)
    return layer


class PaddleGroup(AllReduceGroup):
    """All processes of a job of `paddock launch`, on their processors."""

    def __init__(self) -> None:
        distributed.init_parallel_env()  # Of PADDLE_MASTER, PADDLE_TRAINER_ID and the endpoints.
        super().__init__(distributed)

    def add(self, numbers: NDArray[Any]) -> None:
        """Adds up (n,) float32 or float64 over all copies, in place."""
        tensor = paddle.to_tensor(numbers)
        distributed.all_reduce(tensor)
        numbers[...] = tensor.numpy()


NET, GROUP = PaddleNet, PaddleGroup
GPU = "gpu"


def has_gpu() -> bool:
    """Paddle sees a GPU."""
    return bool(paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count())
