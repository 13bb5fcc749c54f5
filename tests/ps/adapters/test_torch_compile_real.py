"""A dense model of a Trainer is compiled and exported like any other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from paddock.ps import Client
from ps.adapters.served import together
from ps.running import inside

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.real, pytest.mark.limit(120)]

INPUT = [[1.0, 2.0], [3.0, 4.0]]


@pytest.fixture
def pair() -> Iterator[tuple[list[Client], list[Any]]]:
    """Two trainers of async with one model."""
    from paddock.ps import torch as ps_torch

    torch._dynamo.reset()
    with inside(1, 2) as endpoints, ExitStack() as stack:
        clients = [
            stack.enter_context(Client(endpoints, trainer=trainer, trainers=2))
            for trainer in range(2)
        ]
        trainers: list[Any] = [None, None]

        def make(trainer: int) -> None:
            model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh())
            trainers[trainer] = ps_torch.Trainer(clients[trainer], model, optimizer="sgd", lr=0.25)

        together(2, make)
        yield clients, trainers


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_compiled_model_learns_and_judges_with_what_the_servers_have(
    pair: tuple[list[Client], list[Any]], is_whole: bool
) -> None:
    """One graph has no place to ask in: before an evaluation dense.refresh() does. Compiled once
    for learning, once for judging.
    """
    clients, trainers = pair
    data = torch.tensor(INPUT)
    graphs: list[int] = []

    def count(graph: Any, _: object) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    compiled = torch.compile(trainers[1].module, backend=count, fullgraph=is_whole)
    counts = list[int]()
    for _ in range(3):
        trainers[1].step(compiled(data).sum())
        clients[1].flush()
        counts.append(len(graphs))
    assert counts[0] == counts[2] > 0
    before = clients[1].pull_dense("dense").tolist()
    trainers[0].step(trainers[0].module(data).sum())
    clients[0].flush()
    newest = clients[1].pull_dense("dense").tolist()
    assert newest != before
    if is_whole:
        trainers[1].dense.refresh()
    with torch.no_grad():
        judged = compiled(data)
    assert trainers[1].dense.flat.tolist() == newest
    weights = torch.tensor(newest)
    assert torch.allclose(judged, torch.tanh(data @ weights[:4].view(2, 2).T + weights[4:]))


def test_a_model_is_exported_and_traced(pair: tuple[list[Client], list[Any]]) -> None:
    """In both ways of torch.export, and by torch.jit.trace."""
    data = torch.tensor(INPUT)
    model = pair[1][0].module.eval()
    right = model(data)
    for is_strict in (False, True):
        exported = torch.export.export(model, (data,), strict=is_strict)
        assert torch.equal(exported.module()(data), right)
    with pytest.warns():  # torch: trace is deprecated
        traced = torch.jit.trace(model, data)
    assert torch.equal(traced(data), right)
