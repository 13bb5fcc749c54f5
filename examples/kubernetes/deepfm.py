"""DeepFM click prediction on parameter servers: wide_and_deep.py with another model.

What a factorization machine adds to the weights of single ids is the inner product of every pair
of their vectors (Guo et al. 2017, https://arxiv.org/abs/1703.04247).

    paddock launch --server-num 2 --worker-num 2 examples/kubernetes/deepfm.py
"""

import argparse
from typing import Any

import wide_and_deep


def deepfm(client: Any, options: argparse.Namespace) -> Any:
    """The model: weights, pairs, and an MLP over the vectors and the numbers. Logits."""
    import criteo_like
    import paddle
    from paddle import nn

    from paddock import ps
    from paddock.ps import paddle as ps_paddle

    class DeepFM(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            adam = ps.OptimizerSpec("adam", options.lr)
            self.weights = ps_paddle.Embedding(client, "wide", 1, optimizer=adam, pooling="sum")
            self.vectors = ps_paddle.Embedding(client, "deep", options.dim, optimizer=adam)
            inputs = criteo_like.SLOTS * options.dim + criteo_like.NUMBERS
            self.mlp = nn.Sequential(
                nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
            )

        def forward(self, ids: paddle.Tensor, dense: paddle.Tensor) -> paddle.Tensor:
            vectors = self.vectors(ids)
            # The sum over all pairs in linear time: equation 3 of Rendle 2010.
            pairs = (vectors.sum(1) ** 2 - (vectors**2).sum(1)).sum(1, keepdim=True) / 2
            deep = self.mlp(paddle.concat([vectors.flatten(1), dense], 1))
            return (self.weights(ids) + pairs + deep).squeeze(1)

    return DeepFM()


if __name__ == "__main__":
    wide_and_deep.run(deepfm, __doc__)
