"""What torchrec's jagged tensors may have, and a collection cannot honour."""

from __future__ import annotations

import pytest

from paddock.errors import UsageError
from paddock.ps import OptimizerSpec, SparseSpec
from ps.adapters.fake_client import FakeClient

torch = pytest.importorskip("torch")
from paddock.ps import torch as ps_torch  # noqa: E402 - after torch is known to be there

pytestmark = pytest.mark.real


class Weighted(ps_torch.KeyedJagged):
    """What torchrec's KeyedJaggedTensor has besides."""

    weight: torch.Tensor | None = None
    is_variable = False

    def weights_or_none(self) -> torch.Tensor | None:
        """A weight for each id."""
        return self.weight

    def variable_stride_per_key(self) -> bool:
        """Whether features differ in their numbers of examples."""
        return self.is_variable


def test_what_a_collection_cannot_honour_of_a_jagged_tensor_is_refused() -> None:
    """Weights would be dropped, bags mixed up, the first of two features lost: all in silence."""
    bags = [ps_torch.Bags(SparseSpec("t", 2, OptimizerSpec("sgd", 1.0)), ("a",))]
    layer = ps_torch.EmbeddingCollection(FakeClient(), bags)
    ids, lengths = torch.tensor([5, 5, 7]), torch.tensor([2, 1])
    features = Weighted(["a"], ids, lengths)
    assert torch.equal(layer(features)["a"], layer(ps_torch.KeyedJagged(["a"], ids, lengths))["a"])
    features.weight = torch.tensor([0.5, 2.0, 10.0])
    with pytest.raises(UsageError, match="the ids have weights"):
        layer(features)
    features.weight, features.is_variable = None, True
    with pytest.raises(UsageError, match="different numbers of examples"):
        layer(features)
    with pytest.raises(UsageError, match="feature 'a' is there twice"):
        layer(ps_torch.KeyedJagged(["a", "a"], ids, lengths))

    class Jagged:
        """torchrec's JaggedTensor is of one feature, and has no name for it."""

        def values(self) -> torch.Tensor:
            return ids

        def lengths(self) -> torch.Tensor:
            return lengths

    with pytest.raises(UsageError, match=r"type .*Jagged, not of several features"):
        layer(Jagged())
