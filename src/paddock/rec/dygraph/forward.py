"""What Paddle does otherwise while a model whose embeddings are on the servers computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any

from paddle import nn
from paddle.nn import functional

from paddock.errors import UsageError

DENSE = "sparse=False for it: it is then a dense table"


@contextmanager
def as_served(taken: Set[int], saw_sparse: Callable[[], None]) -> Iterator[None]:
    """Around a forward. taken: ids of layers that look up on the servers.

    saw_sparse: called where functional.embedding is asked for sparse gradients. Raises UsageError
    where the model uses what is on the servers.
    """
    own, named = functional.embedding, nn.Layer.named_parameters
    functional.embedding = _dense_gradients(own, saw_sparse)
    nn.Layer.named_parameters = _refusing(named, taken)
    try:
        yield
    except AttributeError as error:
        if "weight" in str(error) and "Embedding" in str(error) and taken:
            raise UsageError(
                f"the model uses the weight of a sparse embedding: {error}", hint=DENSE
            ) from error
        raise
    finally:
        functional.embedding, nn.Layer.named_parameters = own, named


def _dense_gradients(own: Callable[..., Any], saw_sparse: Callable[[], None]) -> Callable[..., Any]:
    """functional.embedding whose gradient is dense: such weights are part of a dense table."""

    def embedding(*args: Any, **options: Any) -> Any:
        if options.pop("sparse", False):
            saw_sparse()
        return own(*args, **options)

    return embedding


def _refusing(own: Callable[..., Any], taken: Set[int]) -> Callable[..., Any]:
    """Layer.named_parameters, which parameters() asks, too: those on the servers would be missing.

    A loss that has the norm of all would be another one, and nothing would say so.
    """

    def named_parameters(layer: nn.Layer, *args: Any, **options: Any) -> Any:
        if any(id(one) in taken for one in layer.sublayers(include_self=True)):
            raise UsageError(
                "the model asks for all its parameters while it computes, and those of its sparse "
                "embeddings are on the servers",
                hint=DENSE,
            )
        return own(layer, *args, **options)

    return named_parameters
