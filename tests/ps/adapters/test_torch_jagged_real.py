"""What torchrec's jagged tensors may have, and a collection cannot honour."""

from __future__ import annotations

import copy
import re

import pytest

from paddock import ps
from paddock.errors import UsageError
from paddock.ps import OptimizerSpec, SparseSpec
from ps.adapters.fake_client import FakeClient
from ps.adapters.served import ROOT

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
    weighted = ps_torch.EmbeddingCollection(FakeClient(), bags, is_weighted=True)
    features.weight = torch.ones(2)
    with pytest.raises(UsageError, match=r"weights of shape \(2,\) for 3 ids"):
        weighted(features)
    features.weight = None
    with pytest.raises(UsageError, match="the ids have no weights"):
        weighted(features)
    with pytest.raises(UsageError, match="pooling 'mean' with weights"):
        means = [ps_torch.Bags(SparseSpec("t", 2), ("a",), "mean")]
        ps_torch.EmbeddingCollection(FakeClient(), means, is_weighted=True)
    features.is_variable = True
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


def test_weights_of_ids_multiply_their_rows_and_learn() -> None:
    """Each feature gets the weights of its own ids, in torchrec's order: feature after feature."""
    client = FakeClient()
    sgd = OptimizerSpec("sgd", 1.0)
    bags = [
        ps_torch.Bags(SparseSpec("t", 2, sgd), ("b", "a")),
        ps_torch.Bags(SparseSpec("u", 2, sgd), ("b",)),
    ]
    layer = ps_torch.EmbeddingCollection(client, bags, is_weighted=True)
    weights = torch.tensor([0.5, 2.0, 10.0, -1.0, 3.0], requires_grad=True)
    features = ps_torch.KeyedJagged(
        ["a", "b"], torch.tensor([5, 5, 7, 5, 8]), torch.tensor([2, 1, 0, 2]), weights
    )
    out = layer(features)
    rows = {
        (table, key): torch.from_numpy(client.pull(table, [key], distinct=True)[0])
        for table in "tu"
        for key in (5, 7, 8)
    }
    t5, t7, t8, u5, u8 = (rows[k] for k in (("t", 5), ("t", 7), ("t", 8), ("u", 5), ("u", 8)))
    wanted = {
        "a": torch.stack([2.5 * t5, 10 * t7]),
        "b@t": torch.stack([0 * t5, 3 * t8 - t5]),
        "b@u": torch.stack([0 * u5, 3 * u8 - u5]),
    }
    assert out.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.allclose(out[name], value), name
    sum(value.sum() for value in out.values()).backward()
    sums = [t5.sum(), t5.sum(), t7.sum(), t5.sum() + u5.sum(), t8.sum() + u8.sum()]
    assert torch.allclose(weights.grad, torch.stack(sums))
    grads = {
        (table, key): grad[0]
        for table, keys, every in client.pushes
        for key, grad in zip(keys, every, strict=True)
    }
    assert grads == {("t", 5): 1.5, ("t", 7): 10, ("t", 8): 3, ("u", 5): -1, ("u", 8): 3}


def test_a_copy_of_a_collection_has_the_same_tables_and_client() -> None:
    """As for an average of models; the client cannot be copied, nor need it be."""
    with ps.local() as client:
        layer = ps_torch.EmbeddingCollection(client, [ps_torch.Bags(SparseSpec("t", 2), ("a",))])
        twin = copy.deepcopy(torch.nn.Sequential(layer))[0]
        features = ps_torch.KeyedJagged(["a"], torch.tensor([5, 7]), torch.tensor([1, 1]))
        layer(features)["a"].sum().backward()
        client.step()
        assert torch.equal(twin(features)["a"], layer(features)["a"])
        assert twin.client is client
        assert twin.layers[0] is not layer.layers[0]


def test_the_pages_dlrm_learns() -> None:
    """By the optimizer that it names; the label depends on rows alone."""
    pages = [ROOT / f"docs/guide/migrating-from-torchrec.{end}" for end in ("md", "zh.md")]
    blocks, chinese = (re.findall(r"```python\n(.*?)```", p.read_text(), re.DOTALL) for p in pages)
    assert blocks == chinese
    functional, names, ids_max = torch.nn.functional, ["x", "y"], 20
    torch.manual_seed(0)
    truth = 2 * torch.randn(len(names), ids_max)

    def batch(size: int) -> tuple[torch.Tensor, ps_torch.KeyedJagged, torch.Tensor]:
        ids = torch.randint(0, ids_max, (len(names), size))
        label = (torch.rand(size) < truth.gather(1, ids).sum(0).sigmoid()).float()
        lengths = torch.ones(ids.numel(), dtype=torch.long)
        features = ps_torch.KeyedJagged(names, ids.reshape(-1), lengths)
        return torch.randn(size, 13), features, label

    with ps.local() as client:
        scope = {
            "CAT": names, "batches": [batch(256) for _ in range(100)], "client": client,
            "functional": functional, "nn": torch.nn, "ps": ps, "ps_torch": ps_torch,
            "torch": torch,
        }  # fmt: skip
        exec(blocks[-1], scope)
        dense, features, label = batch(2000)
        loss = functional.binary_cross_entropy_with_logits
        learnt = loss(scope["model"].eval()(dense, features), label)
    guess = loss(torch.full_like(label, label.mean().logit().item()), label)
    assert learnt < guess - 0.05
