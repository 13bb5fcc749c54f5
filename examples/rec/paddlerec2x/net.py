"""A line over the dense features beside a tower over embeddings and dense features."""

import itertools

import paddle
from paddle import nn


class WideDeep(nn.Layer):
    """Logits of (ids of each slot (batch, 1), dense (batch, width))."""

    def __init__(self, vocabulary, factors, slots, dense_width, layers):
        super().__init__()
        self.wide = nn.Linear(dense_width, 1)
        self.factors = nn.Embedding(
            vocabulary,
            factors,
            sparse=True,
            weight_attr=paddle.ParamAttr(
                name="factors", initializer=nn.initializer.TruncatedNormal(std=0.05)
            ),
        )
        widths = [slots * factors + dense_width, *layers, 1]
        # A list of the user's own, beside add_sublayer: many models are written so.
        self.tower = []
        for number, (rows, columns) in enumerate(itertools.pairwise(widths)):
            linear = nn.Linear(rows, columns)
            self.add_sublayer(f"linear_{number}", linear)
            self.tower.append(linear)

    def forward(self, slots, dense):
        found = [self.factors(ids).squeeze(1) for ids in slots]
        deep = paddle.concat([*found, dense], axis=1)
        for linear in self.tower[:-1]:
            deep = nn.functional.relu(linear(deep))
        return self.wide(dense) + self.tower[-1](deep)
