"""ResNet-18 and ResNet-50: blocks whose output is added to their input.

Source: He et al. 2015, "Deep Residual Learning" (arXiv 1512.03385), table 1; the stride of a
bottleneck is in its 3 x 3, as in torch and Paddle. Small images (64 and less) have a 3 x 3 first
layer and no pooling, as the paper's own for CIFAR.
"""

from __future__ import annotations

import numpy as np

from paddock.data.batch import Batch
from paddock.errors import UsageError
from paddock.rec.models.inputs import Hyper
from paddock.rec.models.net import Layer, Net, Output, Tensor

# layers -> blocks of each stage, and whether they are bottlenecks.
DEPTHS = {18: ((2, 2, 2, 2), False), 50: ((3, 4, 6, 3), True)}
SMALL = 64


class Model:
    """Images (examples, 3, side, side), uint8 -> classes."""

    metrics = ("accuracy", "acc5")

    def __init__(self, net: Net, hyper: Hyper) -> None:
        self.net = net
        layers, width = hyper("layers", 50), hyper("width", 64)
        if layers not in DEPTHS:
            raise UsageError(f"hyper_parameters.layers is {layers}", hint="18 or 50")
        stages, self.is_deep = DEPTHS[layers]
        self.is_small = hyper("image_size", 32) <= SMALL
        size, stride = (3, 1) if self.is_small else (7, 2)
        self.first = self._both("first", 3, width, size, stride)
        self.blocks = []
        inputs = width
        for stage, count in enumerate(stages):
            for number in range(count):
                stride = 2 if stage and not number else 1
                name, inner = f"s{stage}b{number}", width << stage
                outputs = inner * (4 if self.is_deep else 1)
                self.blocks.append(self._block(name, inputs, inner, outputs, stride))
                inputs = outputs
        self.last = net.linear("last", inputs, hyper("class_num", 20))

    def forward(self, batch: Batch) -> Output:
        """The chance of each class."""
        images = np.asarray(batch.other["image"], np.float32)
        x = self.net.relu(self.first(self.net.tensor((images - 127.5) / 64.0)))
        if not self.is_small:
            x = self.net.pool(x, 3, 2)
        for run in self.blocks:
            x = run(x)
        return self.net.classes(self.last(x.mean([2, 3])), batch.label)

    def _both(self, name: str, inputs: int, outputs: int, size: int, stride: int = 1) -> Layer:
        conv = self.net.conv(f"{name}_conv", inputs, outputs, size, stride)
        norm = self.net.batch_norm(f"{name}_norm", outputs)
        return lambda x: norm(conv(x))

    def _block(self, name: str, inputs: int, inner: int, outputs: int, stride: int) -> Layer:
        if self.is_deep:
            sizes = [(inputs, inner, 1, 1), (inner, inner, 3, stride), (inner, outputs, 1, 1)]
        else:
            sizes = [(inputs, inner, 3, stride), (inner, outputs, 3, 1)]
        layers = [self._both(f"{name}_{n}", *one) for n, one in enumerate(sizes)]
        is_same = inputs == outputs and stride == 1
        short = None if is_same else self._both(f"{name}_short", inputs, outputs, 1, stride)

        def run(x: Tensor) -> Tensor:
            out = x
            for layer in layers[:-1]:
                out = self.net.relu(layer(out))
            return self.net.relu(layers[-1](out) + (x if short is None else short(x)))

        return run
