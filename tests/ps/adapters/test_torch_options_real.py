"""What torch's Embedding and EmbeddingBag take: it does the same here, or is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.errors import UsageError
from paddock.ps import AccessorSpec, OptimizerSpec, SparseSpec
from ps.adapters.fake_client import FakeClient

torch = pytest.importorskip("torch")
from paddock.ps import torch as ps_torch  # noqa: E402 - after torch is known to be there

pytestmark = pytest.mark.real

PAD = 0
IDS = torch.tensor([[3, PAD, 3], [5, 7, PAD], [PAD, PAD, PAD]])
WEIGHTS = torch.tensor([[0.5, 9.0, -2.0], [1.0, 3.0, 9.0], [9.0, 9.0, 9.0]])
ROUNDING = 1e-6  # A sum of a bag has fewer zeros here.
OPTIMIZER = OptimizerSpec("sgd", 0.5)


@contextmanager
def both(dim: int = 4, **options: Any) -> Iterator[tuple[ps.Client, Any, torch.nn.Module]]:
    """A table's embedding and torch's, of equal rows."""
    pooled = options.keys() & {"mode", "include_last_offset"}
    kind = torch.nn.EmbeddingBag if pooled else torch.nn.Embedding
    with ps.local() as client:
        layer = ps_torch.Embedding(client, "t", dim, optimizer=OPTIMIZER, **options)
        first = torch.from_numpy(client.pull("t", np.arange(10)))
        if options.get("padding_idx") is not None and not pooled:
            first[options["padding_idx"]] = 0.0  # As torch makes it.
        twin = kind(10, dim, _weight=first, **options)
        yield client, layer, twin


def check_equal_after_a_step(
    client: ps.Client, layer: Any, twin: torch.nn.Module, *arguments: Any
) -> None:
    """Outputs, gradients of the weights of ids, and rows after the step."""
    outputs, weights = [], []
    twin.zero_grad()
    for model in (layer, twin):
        copies = [one.clone() if torch.is_tensor(one) else one for one in arguments]
        weights.append([one.requires_grad_() for one in copies if is_weights(one)])
        outputs.append(model(*copies))
        factors = torch.arange(1.0, outputs[-1].numel() + 1).view_as(outputs[-1])
        (outputs[-1] ** 2 * factors).sum().backward()
    client.step()
    torch.optim.SGD(twin.parameters(), lr=0.5).step()
    assert torch.allclose(*outputs, rtol=0, atol=ROUNDING)
    for mine, of_torch in zip(*weights, strict=True):
        assert torch.allclose(mine.grad, of_torch.grad, rtol=0, atol=ROUNDING)
    ids = torch.tensor([i for i in range(10) if i != layer.padding_idx])
    rows = torch.from_numpy(client.pull("t", ids.numpy()))
    assert torch.allclose(rows, twin.weight[ids], rtol=0, atol=ROUNDING)


def is_weights(argument: Any) -> bool:
    """A tensor that has a gradient."""
    return torch.is_tensor(argument) and argument.is_floating_point()


def test_padding_has_a_row_of_zeros_that_learns_nothing() -> None:
    """And none on the servers."""
    with both(padding_idx=PAD) as (client, layer, twin):
        untouched = client.pull("t", [PAD])
        check_equal_after_a_step(client, layer, twin, IDS)
        check_equal_after_a_step(client, layer, twin, torch.full((2,), PAD))
        assert np.array_equal(client.pull("t", [PAD]), untouched)
        assert client.status()[0]["tables"][0]["rows"] == len({3, 5, 7})


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, PAD])
def test_bags_pool_as_those_of_torch(mode: str, padding_idx: int | None) -> None:
    """By mode= as by pooling=; padding is no part of a bag, nor of its mean's count."""
    with both(mode=mode, padding_idx=padding_idx) as (client, layer, twin):
        check_equal_after_a_step(client, layer, twin, IDS)
        flat, offsets = IDS.reshape(-1), torch.tensor([0, 0, 2, 6])
        check_equal_after_a_step(client, layer, twin, flat, offsets)
        assert (layer.mode, layer.embedding_dim) == (twin.mode, twin.embedding_dim)


@pytest.mark.parametrize("padding_idx", [None, PAD])
def test_ids_are_summed_with_weights_that_have_gradients(padding_idx: int | None) -> None:
    """The third argument of forward(), as torch has it."""
    with both(mode="sum", padding_idx=padding_idx) as (client, layer, twin):
        check_equal_after_a_step(client, layer, twin, IDS, None, WEIGHTS)
        flat, offsets = IDS.reshape(-1), torch.tensor([0, 0, 2, 6])
        check_equal_after_a_step(client, layer, twin, flat, offsets, WEIGHTS.reshape(-1))


def test_the_last_offset_may_be_the_end() -> None:
    """As CSR has it."""
    with both(mode="sum", include_last_offset=True) as (client, layer, twin):
        check_equal_after_a_step(client, layer, twin, IDS.reshape(-1), torch.tensor([0, 2, 2, 9]))
        with pytest.raises(UsageError, match="the last of 2 offsets is not 9"):
            layer(IDS.reshape(-1), torch.tensor([0, 2]))


def test_shows_and_clicks_count_no_padding() -> None:
    """It is no id."""
    client = FakeClient()
    spec = SparseSpec("s", 2, OPTIMIZER, accessor=AccessorSpec(statistics=True))
    layer = ps_torch.Embedding(client, spec, mode="sum", padding_idx=PAD)
    layer(torch.tensor([[3, PAD], [3, 5]]), clicks=torch.tensor([1, 1, 0, 1])).sum().backward()
    ((shows, clicks),) = client.statistics
    assert (shows.tolist(), clicks.tolist()) == ([2, 1], [1, 1])


@pytest.mark.parametrize("mode", ["mean", "max", "none"])
def test_weights_of_ids_that_are_not_summed_are_refused(mode: str) -> None:
    """torch knows them with sums only."""
    layer = ps_torch.Embedding(FakeClient(), "t", 2, pooling=mode)
    with pytest.raises(UsageError, match=f"per_sample_weights with pooling '{mode}'"):
        layer(IDS, None, WEIGHTS)
    summed = ps_torch.Embedding(FakeClient(), "t", 2, mode="sum")
    with pytest.raises(UsageError, match=r"of shape \(2, 3\) for 9 ids"):
        summed(IDS, None, WEIGHTS[:2])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_embeddings": 10}, "takes no num_embeddings: a table has a row for every int64 id"),
        ({"embedding_dim": 4}, "takes no embedding_dim: .*dim=16"),
        ({"max_norm": 1.0}, "takes no max_norm: a look-up changes no row"),
        ({"max_norm": 1.0, "norm_type": 1.0}, "takes no norm_type: it is the norm of max_norm"),
        ({"scale_grad_by_freq": True}, "takes no scale_grad_by_freq: a gradient is the sum"),
        ({"sparse": False}, "takes no sparse: only the rows of a batch are pushed"),
        ({"device": "cuda"}, "takes no device: the rows of a table are float32 on the servers"),
        ({"dtype": torch.float16}, "takes no dtype: the rows of a table are float32"),
        ({"_weight": torch.zeros(3, 2)}, r"takes no _weight: .*client.set\(table, ids, rows\)"),
        ({"_freeze": True}, r"takes no _freeze: .*requires_grad_\(False\)"),
        ({"freeze": True}, r"takes no freeze: .*requires_grad_\(False\)"),
        ({"padding_idx": -1}, "padding_idx is -1, which torch counts from a table's end"),
        ({"mode": "mean", "pooling": "sum"}, "mode='mean' beside pooling='sum'"),
        ({"mode": "median"}, "pooling is 'median'.*one of none, sum, mean, max"),
    ],
)
def test_what_cannot_be_had_says_what_is_instead_of_it(options: dict[str, Any], text: str) -> None:
    """Not a bare TypeError, nor nothing."""
    with pytest.raises(UsageError) as caught:
        ps_torch.Embedding(FakeClient(), "t", 2, **options)
    assert re.search(text, str(caught.value)), caught.value


@pytest.mark.parametrize(
    "options", [{"sparse": True}, {"max_norm": None, "scale_grad_by_freq": False}]
)
def test_what_changes_nothing_may_be_said(options: dict[str, Any]) -> None:
    """nn.EmbeddingBag(..., sparse=True) is in every DLRM."""
    assert ps_torch.Embedding(FakeClient(), "t", 2, **options).dim == 2


def of_torch(client: FakeClient) -> object:
    """The call as it is in torch, of a table with a size."""
    return ps_torch.Embedding(1000, 16)


def from_pretrained(client: FakeClient) -> object:
    """Rows from elsewhere."""
    return ps_torch.Embedding.from_pretrained(torch.zeros(3, 2), freeze=True)


@pytest.mark.parametrize(
    ("call", "text"), [(of_torch, "no size"), (from_pretrained, "trainer 0 gives them values")]
)
def test_torchs_own_calls_say_how_it_is_here(
    call: Callable[[FakeClient], object], text: str
) -> None:
    """Instead of a complaint of another argument."""
    with pytest.raises(UsageError) as caught:
        call(FakeClient())
    assert text in str(caught.value)


@pytest.mark.parametrize("name", ["num_embeddings", "reset_parameters"])
def test_attributes_that_are_not_there_say_why(name: str) -> None:
    """Still an AttributeError: tools ask with hasattr()."""
    layer = ps_torch.Embedding(FakeClient(), "t", 2)
    assert not hasattr(layer, name)
    with pytest.raises(AttributeError, match=f"a table has no {name}: "):
        getattr(layer, name)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        ps_torch.Embedding(FakeClient(), "t", 2, colour="red")


@pytest.mark.parametrize(
    ("ids", "offsets", "text"),
    [
        ([1, 2], None, "ids are int"),
        ([[1, 2], [3]], None, "ids are list"),
        (np.array([1, 2]), None, "ids are ndarray"),
        ([np.array([1, 2])], None, "ids are ndarray"),
        (None, None, "ids are NoneType"),
        ({"item": torch.tensor([1])}, None, "ids are dict"),
        (torch.tensor([1, 2]), [0, 1], "offsets are list"),
    ],
)
def test_ids_that_are_no_tensors_are_refused(ids: object, offsets: object, text: str) -> None:
    """In a sentence, as torch does; lists of tensors are bags, tuples too."""
    with both(mode="sum") as (_, layer, _twin):
        with pytest.raises(UsageError, match=f"table '.*': {text}, not a tensor"):
            layer(ids, offsets)
        assert layer((torch.tensor([1]), torch.tensor([2, 3]))).shape[0] == 2
