"""PyTorch on real servers: the same gradients and the same parameters as torch alone."""

from __future__ import annotations

import copy
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps import Client, OptimizerSpec, RequestError, SparseSpec
from paddock.ps.translate import spec_of
from ps.adapters.fake_client import FakeClient
from ps.adapters.served import servers, together

torch = pytest.importorskip("torch")
from paddock.ps import torch as ps_torch  # noqa: E402 - after torch is known to be there
from paddock.ps.fleet import DistributedOptimizer  # noqa: E402

pytestmark = pytest.mark.real

SGD = OptimizerSpec("sgd", 1.0)
LOCK = threading.Lock()
HASHED = 0x7A3F_91C2_5D00_1234
IDS = [3, -8, 3, HASHED, 3, -8, 11]
OFFSETS = [0, 2, 2, 5]


def reference(client: Client, table: str, pooling: str, scale: object) -> dict[int, np.ndarray]:
    """Row by id after one SGD step, computed by torch's own embedding."""
    keys = sorted(set(IDS))
    weight = torch.tensor(client.pull(table, np.array(keys)), requires_grad=True)
    places = torch.tensor([keys.index(key) for key in IDS])
    if pooling == "none":
        out = torch.nn.functional.embedding(places, weight)
    else:
        bags = torch.tensor(OFFSETS)
        out = torch.nn.functional.embedding_bag(places, weight, bags, mode=pooling)
    (out.pow(3) * scale).sum().backward()
    after = (weight - weight.grad).detach().numpy()
    return dict(zip(keys, after, strict=True))


@pytest.mark.parametrize("pooling", ["none", "sum", "mean"])
def test_gradients_are_those_of_torchs_embedding_bag(pooling: str) -> None:
    """Repeated ids, negative and 63-bit ids, an empty bag: all as torch has it."""
    with servers(2) as endpoints, Client(endpoints, strategy="half_async") as client:
        layer = ps_torch.Embedding(client, "t", 5, optimizer=SGD, pooling=pooling)
        ids = torch.tensor(IDS)
        rows = len(IDS) if pooling == "none" else len(OFFSETS)
        scale = torch.linspace(1e3, 2e3, rows).reshape(-1, 1)
        wanted = reference(client, "t", pooling, scale)
        out = layer(ids) if pooling == "none" else layer(ids, torch.tensor(OFFSETS))
        (out.pow(3) * scale).sum().backward()
        client.step()
        got = client.pull("t", np.array(list(wanted)))
        assert np.allclose(got, np.stack(list(wanted.values())), rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_all_ways_to_say_the_bags_agree(pooling: str) -> None:
    """A matrix, flat ids with offsets, a list of tensors: one meaning."""
    layer = ps_torch.Embedding(FakeClient(), "t", 4, optimizer=SGD, pooling=pooling)
    matrix = torch.tensor([[1, 2, 2], [5, 6, 7]])
    flat = layer(matrix.reshape(-1), torch.tensor([0, 3]))
    assert torch.equal(layer(matrix), flat)
    assert torch.equal(layer([matrix[0], matrix[1]]), flat)
    assert torch.equal(layer([matrix[0], matrix[0][:0]])[1], torch.zeros(4))


def test_ids_of_any_shape_give_rows_of_that_shape() -> None:
    """No flattening by hand, and an empty batch is no special case."""
    layer = ps_torch.Embedding(FakeClient(), "t", 4, optimizer=SGD)
    assert layer(torch.zeros((2, 3, 5), dtype=torch.int64)).shape == (2, 3, 5, 4)
    assert layer(torch.zeros((0, 3), dtype=torch.int64)).shape == (0, 3, 4)


def test_evaluation_never_pushes_a_gradient() -> None:
    """Neither eval() nor no_grad() may teach the tables the test set."""
    client = FakeClient()
    layer = ps_torch.Embedding(client, "t", 4, optimizer=SGD)
    weight = torch.ones(4, requires_grad=True)
    with torch.no_grad():
        assert not layer(torch.tensor([1])).requires_grad
    layer.eval()
    (layer(torch.tensor([1])) * weight).sum().backward()
    assert client.pushes == []
    layer.train()
    (layer(torch.tensor([1])) * weight).sum().backward()
    assert len(client.pushes) == 1


def test_several_look_ups_of_a_batch_are_one_push() -> None:
    """A shared table used twice gets one optimizer step, with both gradients added."""
    client = FakeClient()
    model = torch.nn.Module()
    model.table = ps_torch.Embedding(client, "t", 1, optimizer=SGD)
    trainer = ps_torch.Trainer(client, model)
    one, two = model.table(torch.tensor([1, 2])), model.table(torch.tensor([2, 3]))
    trainer.step(one.sum() + 10 * two.sum())
    ((_, keys, grads),) = client.pushes
    assert dict(zip(keys.tolist(), grads[:, 0].tolist(), strict=True)) == {1: 1, 2: 11, 3: 10}
    assert client.steps == 1


def test_parameters_are_views_of_the_pulled_vector() -> None:
    """Pulling writes where the module reads; nothing is copied."""
    client = FakeClient()
    module = torch.nn.Linear(3, 2)
    before = module.weight.detach().clone()
    dense = ps_torch.DenseParameters(client, module, optimizer=SGD)
    assert torch.equal(module.weight, before)
    assert module.weight.data_ptr() == dense.flat.data_ptr()
    module(torch.ones(1, 3)).sum().backward()
    dense.push()
    dense.pull()
    assert torch.equal(module.weight, before - 1.0)
    assert module.weight.grad is None


def test_gradients_survive_zero_grad_and_unused_parameters() -> None:
    """zero_grad() takes the views away; a parameter without gradient sends nothing."""
    client = FakeClient()
    module = torch.nn.ModuleList([torch.nn.Linear(1, 1, bias=False) for _ in range(2)])
    dense = ps_torch.DenseParameters(client, module, optimizer=SGD)
    before = dense.flat.clone()
    module.zero_grad()
    module[0](torch.full((1, 1), 2.0)).sum().backward()
    dense.push()
    dense.pull()
    assert (before - dense.flat).tolist() == pytest.approx([2.0, 0.0])


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("adam", "sync"), ("adamw", "sync"), ("adamw", "half_async"), ("adamw", "geo")],
)
def test_unused_parameters_are_left_alone_as_torch_leaves_them(name: str, strategy: str) -> None:
    """Adam's momentum would move them, AdamW's decay shrink them, and their age grow."""
    torch.manual_seed(1)
    model = torch.nn.ModuleList(torch.nn.Linear(3, 1) for _ in range(3))
    alone = copy.deepcopy(model)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    rule = kind(alone.parameters(), lr=0.1)
    x = torch.linspace(-1, 1, 3)
    with servers(2) as endpoints, Client(endpoints, strategy=strategy) as client:
        trainer = ps_torch.Trainer(client, model, optimizer=spec_of(rule))
        for used in ([0, 1, 2], [0], [0, 2], [], [0], [1, 2]):
            rule.zero_grad()
            before = [p.clone() for p in model.parameters()]
            for trained in (model, alone):
                loss = sum(trained[i](x).sum() ** 2 for i in used)
                if used:
                    loss.backward()
            trainer.step()
            rule.step()
            for number, (was, now) in enumerate(zip(before, model.parameters(), strict=True)):
                assert torch.equal(was, now) == (number // 2 not in used)
        for mine, wanted in zip(model.parameters(), alone.parameters(), strict=True):
            assert torch.allclose(mine, wanted, rtol=0, atol=1e-5)


def test_running_statistics_are_those_of_all_trainers_and_are_saved(tmp_path: Path) -> None:
    """BatchNorm's buffers are no parameters; each trainer would keep, and lose, its own."""

    def make() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))

    batches = [torch.randn(2, 16, 2, generator=torch.manual_seed(i)) + i for i in range(4)]
    found: dict[int, list[torch.Tensor]] = {}

    def work(trainer: int) -> None:
        with Client(endpoints, strategy="sync", trainer=trainer, trainers=2) as client:
            model = make()
            fitted = ps_torch.Trainer(client, model, optimizer="sgd", lr=0.0)
            for batch in batches:
                fitted.step(model(batch[trainer]).sum())
            model.eval()
            fitted.step(model(batches[0][trainer]).sum())
            found[trainer] = [model[0].running_mean.clone(), model[0].running_var.clone()]
            if trainer == 0:
                client.save(tmp_path)
            client.barrier("saved")

    with servers(2, trainers=2) as endpoints:
        together(2, work)
    each = [torch.nn.BatchNorm1d(2) for _ in range(2)]
    for batch in batches:
        for norm, half in zip(each, batch, strict=True):
            norm(half)
    wanted = [
        (each[0].running_mean + each[1].running_mean) / 2,
        (each[0].running_var + each[1].running_var) / 2,
    ]
    for mine, other, right in zip(found[0], found[1], wanted, strict=True):
        assert torch.equal(mine, other)
        assert torch.allclose(mine, right, rtol=0, atol=1e-5)
    with servers(1) as endpoints, Client(endpoints, trainer=0, trainers=1) as client:
        model = make()
        fitted = ps_torch.Trainer(client, model, optimizer="sgd", lr=0.0)
        client.load(tmp_path)
        fitted.dense.pull()
        assert torch.equal(model[0].running_mean, found[0][0])
        assert torch.equal(model[0].running_var, found[0][1])


@pytest.mark.parametrize("strategy", ["sync", "async", "geo"])
def test_a_state_dict_that_is_loaded_goes_to_the_servers(strategy: str, tmp_path: Path) -> None:
    """Dense parameters live there: what the model alone has is gone with the next pull."""

    def make() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))

    batch = torch.randn(16, 2, generator=torch.manual_seed(1)) + 1
    with servers(2) as endpoints, Client(endpoints, strategy=strategy) as client:
        model = make()
        trainer = ps_torch.Trainer(client, model, optimizer="adam", lr=0.1)
        trainer.step(model(batch).sum())
        torch.save(model.state_dict(), tmp_path / "model.pt")
        saved = copy.deepcopy(model.state_dict())
        trainer.step(model(batch).sum())
        client.flush()
        trainer.dense.pull()
        assert not torch.equal(model[1].bias, saved["1.bias"])
        with pytest.raises(UsageError, match="assign=True"):
            copy.copy(model).load_state_dict(saved, assign=True)
    with servers(1) as endpoints, Client(endpoints, strategy=strategy) as client:
        model = make()
        trainer = ps_torch.Trainer(client, model, optimizer="sgd", lr=0.0)
        copy.deepcopy(model).load_state_dict(make().state_dict())  # Not the model that trains.
        model.load_state_dict(torch.load(tmp_path / "model.pt"))
        for _ in range(2):
            trainer.dense.pull()
            for name, tensor in model.state_dict().items():
                assert torch.equal(tensor, saved[name]), name
            model.eval()
            trainer.step(model(batch).sum())
        other = make()
        ps_torch.DenseParameters(client, other, optimizer="sgd", lr=0.0)
        assert torch.equal(other[1].weight, saved["1.weight"])
        assert torch.equal(other[0].running_var, saved["0.running_var"])


def test_a_refused_batch_leaves_no_trace_in_the_buffers() -> None:
    """NaN stays in a running mean for good."""
    client = FakeClient()
    model = torch.nn.BatchNorm1d(1)
    trainer = ps_torch.Trainer(client, model, optimizer=SGD)
    with pytest.raises(RequestError, match="NaN"):
        trainer.step(model(torch.full((2, 1), float("nan"))).sum())
    assert model.running_mean.tolist() == [0.0]
    trainer.step(model(torch.ones(2, 1)).sum())
    assert model.running_mean.tolist() == pytest.approx([0.1])


def test_ids_of_the_wrong_type_are_told() -> None:
    """A float id would lose digits; int32 ones are widened, as the client does."""
    layer = ps_torch.Embedding(FakeClient(), "t", 4, optimizer=SGD)
    with pytest.raises(UsageError, match="keys are float32"):
        layer(torch.zeros(3))
    assert torch.equal(layer(torch.tensor([-5], dtype=torch.int32)), layer(torch.tensor([-5])))


@pytest.mark.parametrize("bad", ["table", "dense", "both"])
def test_a_batch_with_nan_is_refused_whole_and_training_goes_on(bad: str) -> None:
    """Either part alone makes the batch a bad one; nothing of it may stay behind."""
    client = FakeClient()
    model = torch.nn.Module()
    model.fine = ps_torch.Embedding(client, "fine", 1, optimizer=SGD)
    model.table = ps_torch.Embedding(client, "t", 1, optimizer=SGD)
    model.mlp = torch.nn.Linear(1, 1, bias=False)
    trainer = ps_torch.Trainer(client, model, optimizer=SGD)
    before = trainer.dense.flat.clone()

    def loss(table: float, dense: float) -> torch.Tensor:
        rows = model.fine(torch.tensor([1])).sum() + table * model.table(torch.tensor([1])).sum()
        return rows + dense * model.mlp(torch.ones(1, 1)).sum()

    nan = float("nan")
    with pytest.raises(RequestError, match="NaN"):
        trainer.step(loss(1.0 if bad == "dense" else nan, 1.0 if bad == "table" else nan))
    assert (client.pushes, client.steps) == ([], 0)
    assert torch.equal(trainer.dense.flat, before)
    trainer.step(loss(1.0, 1.0))
    assert [(table, grads.tolist()) for table, _, grads in client.pushes] == [
        ("fine", [[1.0]]),
        ("t", [[1.0]]),
    ]
    assert torch.equal(trainer.dense.flat, before - 1.0)


def test_what_is_no_loss_and_no_optimizer_is_told_in_a_line() -> None:
    """An AttributeError of a float, and torch's repr of 14 lines, say less."""
    module = torch.nn.Linear(1, 1)
    with pytest.raises(UsageError, match="got a float"):
        ps_torch.Trainer(FakeClient(), module).step(1.0)
    with pytest.raises(UsageError, match="optimizer is of type Adam, ") as caught:
        ps_torch.Trainer(FakeClient(), module, optimizer=torch.optim.Adam(module.parameters()))
    assert "\n" not in str(caught.value)


def test_a_scheduler_of_torch_drives_the_rates_of_all_tables() -> None:
    """As it would those of a torch optimizer; and the servers are told what has changed only."""
    with servers(2) as endpoints, Client(endpoints, strategy="half_async") as client:
        model = torch.nn.Module()
        model.table = ps_torch.Embedding(client, "t", 1, optimizer=OptimizerSpec("sgd", 0.5))
        model.mlp = torch.nn.Linear(1, 1, bias=False)
        trainer = ps_torch.Trainer(client, model, optimizer="sgd", lr=1.0)
        ids = torch.tensor([7])
        before = model.table(ids).item(), model.mlp.weight.item()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch's, about the order of the two calls
            scheduler = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 2, 0.5)
            for _ in range(4):
                trainer.step(model.table(ids).sum() + model.mlp(torch.ones(1, 1)).sum())
                scheduler.step()
        after = model.table(ids).item(), model.mlp.weight.item()
        moved = [a - b for a, b in zip(before, after, strict=True)]
        assert moved == pytest.approx([1.5, 3.0], abs=1e-6)
        assert scheduler.get_last_lr() == [0.125, 0.25]


def test_rates_are_sent_when_they_are_driven_and_when_they_change() -> None:
    """Without a scheduler never; with one at its first push, whatever the servers had before."""
    client = FakeClient()
    model = torch.nn.Linear(1, 1)
    trainer = ps_torch.Trainer(client, model, optimizer="sgd", lr=1.0)

    def steps(count: int) -> list[tuple[str, float]]:
        client.rates.clear()
        for _ in range(count):
            trainer.optimizer.zero_grad()
            model(torch.ones(1, 1)).sum().backward()
            trainer.optimizer.step()
        return client.rates

    assert steps(2) == []
    trainer.optimizer.param_groups[0]["lr"] = 0.5
    assert steps(2) == [("dense", 0.5)]
    other = ps_torch.Trainer(client, model, optimizer="sgd", lr=1.0)
    trainer = other
    torch.optim.lr_scheduler.ConstantLR(other.optimizer, 1.0)
    assert steps(2) == [("dense", 1.0)]
    assert client.steps == 6


def test_fleets_optimizer_follows_the_scheduler_of_the_one_it_was_given() -> None:
    """Its rule runs on the servers; its rate would stay what it was at the start."""
    client = FakeClient()
    model = torch.nn.Linear(1, 1)
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    optimizer = DistributedOptimizer(inner, model)
    optimizer.begin(client)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, 0.5)
    for _ in range(2):
        optimizer.minimize(model(torch.ones(1, 1)).sum())
        scheduler.step()
    assert client.rates == [("dense", 1.0), ("dense", 0.5)]


FEATURES = ("user", "item", "seen")


def jagged(number: int, trainer: int = 0) -> ps_torch.KeyedJagged:
    """Ids of three features for four examples; bags may be empty."""
    rng = np.random.default_rng([number, trainer])
    lengths = rng.integers(0, 4, 3 * 4)
    ids = rng.integers(0, 9, lengths.sum())
    return ps_torch.KeyedJagged(FEATURES, torch.from_numpy(ids), torch.from_numpy(lengths))


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_a_collection_in_sync_has_the_bits_of_torchs_embedding_bags(pooling: str) -> None:
    """Several tables, one with two features, one feature in two tables; every step the same."""
    rule = OptimizerSpec("sgd", 0.5)
    bags = [
        ps_torch.Bags(SparseSpec("users", 3, rule), ("user",), pooling),
        ps_torch.Bags(SparseSpec("items", 4, rule), ("item", "seen"), pooling),
        ps_torch.Bags(SparseSpec("more", 2, rule), ("item", "seen"), pooling),
    ]
    names = ["user", "item@items", "seen@items", "item@more", "seen@more"]
    with servers(2) as endpoints, Client(endpoints, strategy="sync", trainers=1) as client:
        layer = ps_torch.EmbeddingCollection(client, bags)
        trainer = ps_torch.Trainer(client, torch.nn.ModuleList([layer]))
        alone = {
            one.spec.name: torch.nn.EmbeddingBag.from_pretrained(
                torch.from_numpy(client.pull(one.spec.name, np.arange(9))),
                freeze=False,
                mode=pooling,
            )
            for one in bags
        }
        optimizer = torch.optim.SGD([bag.weight for bag in alone.values()], lr=0.5)
        for number in range(5):
            features = jagged(number)
            lengths = features.lengths().reshape(3, 4)
            ids = features.values().split(lengths.sum(1).tolist())
            parts = {
                feature: (mine, of.cumsum(0) - of)
                for feature, mine, of in zip(FEATURES, ids, lengths, strict=True)
            }
            out = layer(features)
            wanted = {
                name: alone[bag.spec.name](*parts[name.split("@")[0]])
                for bag, of in zip(bags, layer.names, strict=True)
                for name in of
            }
            assert list(out) == names
            for name in names:
                assert torch.equal(out[name], wanted[name]), (number, name)
            optimizer.zero_grad()
            sum(one.pow(2).sum() for one in wanted.values()).backward()
            optimizer.step()
            trainer.step(sum(one.pow(2).sum() for one in out.values()))
        for table, bag in alone.items():
            assert np.array_equal(client.pull(table, np.arange(9)), bag.weight.detach().numpy())


def test_a_collection_asks_once_for_a_batch_and_says_what_is_missing() -> None:
    """One pull of distinct keys for each table; wrong lengths would mix the bags up."""
    client = FakeClient()
    bags = [ps_torch.Bags(SparseSpec("t", 2, SGD), ("a", "b"))]
    layer = ps_torch.EmbeddingCollection(client, bags)
    ids, lengths = torch.tensor([5, 5, 7, 5]), torch.tensor([2, 0, 1, 1])
    layer(ps_torch.KeyedJagged(["a", "b"], ids, lengths))["a"].sum().backward()
    assert client.pulled == [("t", 2)]
    assert [(keys.tolist(), grads.tolist()) for _, keys, grads in client.pushes] == [
        ([5, 7], [[2.0, 2.0], [0.0, 0.0]])
    ]
    with pytest.raises(UsageError, match="no ids of feature 'b'"):
        layer(ps_torch.KeyedJagged(["a"], ids, torch.tensor([2, 2])))
    with pytest.raises(UsageError, match="add up to 3"):
        layer(ps_torch.KeyedJagged(["a", "b"], ids, torch.tensor([1, 0, 1, 1])))
    with pytest.raises(UsageError, match="3 lengths of 2 features"):
        layer(ps_torch.KeyedJagged(["a", "b"], ids, torch.tensor([1, 2, 1])))
    with pytest.raises(UsageError, match="type Tensor, not of several features"):
        layer(ids)
    spec = SparseSpec("c", 4)
    for words in (("c", ("a",)), (spec, "a"), (spec, ("a",), "max")):
        with pytest.raises(UsageError):
            ps_torch.Bags(*words)
    with pytest.raises(UsageError, match="'t' of a collection is there twice"):
        ps_torch.EmbeddingCollection(client, bags * 2)


def test_a_deep_copy_shares_the_table_and_the_client() -> None:
    """Copies of a model (an average of it, say) are made so; a client has sockets and threads."""
    client = FakeClient()
    layer = ps_torch.Embedding(client, "t", 2, optimizer=SGD, push_in_backward=False)
    layer(torch.tensor([1])).sum().backward()
    twin = copy.deepcopy(torch.nn.Sequential(layer))[0]
    assert twin.rows.client is client
    assert (layer.rows.forget(), twin.rows.forget()) == (1, 0)
    assert torch.equal(twin(torch.tensor([1])), layer(torch.tensor([1])))


def make_model(client: Client, optimizer: OptimizerSpec) -> torch.nn.Module:
    """Two tables and a small MLP."""
    torch.manual_seed(3)
    model = torch.nn.Module()
    model.deep = ps_torch.Embedding(client, "deep", 4, optimizer=optimizer)
    model.bag = ps_torch.Embedding(client, "bag", 1, optimizer=optimizer, pooling="sum")
    model.mlp = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model


def fit(endpoints: str, trainer: int, trainers: int, optimizer: OptimizerSpec) -> list[np.ndarray]:
    """Trains on this trainer's part of 12 batches; all parameters afterwards."""
    client = Client(endpoints, strategy="sync", trainer=trainer, trainers=trainers)
    with client:
        with LOCK:  # torch's seed is one for all threads
            model = make_model(client, optimizer)
        fitted = ps_torch.Trainer(client, model, optimizer=optimizer)
        for number in range(12):
            rng = np.random.default_rng(number)
            ids = torch.from_numpy(rng.integers(0, 40, (32, 3)))[trainer::trainers]
            label = torch.from_numpy(rng.random((32, 1), np.float32))[trainer::trainers]
            logits = model.mlp(model.deep(ids).flatten(1)) + model.bag(ids)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, label)
            fitted.step(loss)
        keys = np.arange(40)
        return [client.pull("deep", keys), client.pull("bag", keys), client.pull_dense("dense")]


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_two_sync_trainers_equal_one_with_the_whole_batch(name: str) -> None:
    """Each has half of every batch; the mean of the halves' means is the mean of the whole."""
    optimizer = OptimizerSpec(name, 0.05)
    with servers(1) as endpoints:
        alone = fit(endpoints, 0, 1, optimizer)
    found: dict[int, list[np.ndarray]] = {}
    with servers(2, trainers=2) as endpoints:
        together(2, lambda i: found.update({i: fit(endpoints, i, 2, optimizer)}))
    for mine, other, whole in zip(found[0], found[1], alone, strict=True):
        assert np.array_equal(mine, other)
        assert np.allclose(mine, whole, rtol=0, atol=1e-6)
