"""PaddlePaddle dygraph on real servers: the same gradients as Paddle's own embedding."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps import Client, OptimizerSpec, RequestError, SparseSpec
from ps.adapters.fake_client import FakeClient
from ps.adapters.served import environment, finish, free_ports, servers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Paddle 3.3 warns of a missing ccache when imported.
    paddle = pytest.importorskip("paddle")
from paddock.ps import paddle as ps_paddle  # after paddle is known to be there
from paddock.ps.fleet import DistributedOptimizer
from paddock.ps.translate import spec_of

pytestmark = pytest.mark.real

SGD = OptimizerSpec("sgd", 1.0)
HASHED = 0x7A3F_91C2_5D00_1234
IDS = [3, -8, 3, HASHED, 3, -8, 11]
LENGTHS = [2, 0, 3, 2]


def reference(client: Client, pooling: str, scale: object) -> dict[int, np.ndarray]:
    """Row by id after one SGD step; Paddle's embedding, pooled bag by bag with its own sums."""
    keys = sorted(set(IDS))
    weight = paddle.to_tensor(client.pull("t", np.array(keys)), stop_gradient=False)
    places = paddle.to_tensor([keys.index(key) for key in IDS])
    each = paddle.nn.functional.embedding(places, weight)
    if pooling != "none":
        bags, start = [], 0
        for length in LENGTHS:
            bag = each[start : start + length]
            start += length
            if length == 0:
                bags.append(paddle.zeros([5]))
            else:
                bags.append(bag.mean(0) if pooling == "mean" else bag.sum(0))
        each = paddle.stack(bags)
    (each.pow(3) * scale).sum().backward()
    after = (weight - weight.grad).numpy()
    return dict(zip(keys, after, strict=True))


@pytest.mark.parametrize("pooling", ["none", "sum", "mean"])
def test_gradients_are_those_of_paddles_embedding(pooling: str) -> None:
    """Repeated ids, negative and 63-bit ids, an empty bag."""
    with servers(2) as endpoints, Client(endpoints, strategy="half_async") as client:
        layer = ps_paddle.Embedding(client, "t", 5, optimizer=SGD, pooling=pooling)
        rows = len(IDS) if pooling == "none" else len(LENGTHS)
        scale = paddle.linspace(1e3, 2e3, rows).reshape([-1, 1])
        wanted = reference(client, pooling, scale)
        ids = paddle.to_tensor(IDS)
        out = layer(ids) if pooling == "none" else layer(ids, paddle.to_tensor([0, 2, 2, 5]))
        (out.pow(3) * scale).sum().backward()
        client.step()
        got = client.pull("t", np.array(list(wanted)))
        assert np.allclose(got, np.stack(list(wanted.values())), rtol=0, atol=1e-6)


@pytest.mark.parametrize("pooling", ["sum", "mean"])
def test_all_ways_to_say_the_bags_agree(pooling: str) -> None:
    """A matrix, flat ids with offsets, a list of tensors: one meaning."""
    layer = ps_paddle.Embedding(FakeClient(), "t", 4, optimizer=SGD, pooling=pooling)
    matrix = paddle.to_tensor([[1, 2, 2], [5, 6, 7]])
    flat = layer(matrix.reshape([-1]), paddle.to_tensor([0, 3])).numpy()
    assert np.allclose(layer(matrix).numpy(), flat)
    assert np.allclose(layer([matrix[0], matrix[1]]).numpy(), flat)
    empty = paddle.to_tensor(np.zeros(0, np.int64))
    assert np.array_equal(layer([matrix[0], empty]).numpy()[1], np.zeros(4))


def test_evaluation_never_pushes_a_gradient() -> None:
    """Neither eval() nor no_grad() may teach the tables the test set."""
    client = FakeClient()
    layer = ps_paddle.Embedding(client, "t", 4, optimizer=SGD)
    weight = paddle.ones([4])
    weight.stop_gradient = False
    with paddle.no_grad():
        assert layer(paddle.to_tensor([1])).stop_gradient
    layer.eval()
    (layer(paddle.to_tensor([1])) * weight).sum().backward()
    assert client.pushes == []
    layer.train()
    (layer(paddle.to_tensor([1])) * weight).sum().backward()
    assert len(client.pushes) == 1


def test_several_look_ups_of_a_batch_are_one_push() -> None:
    """A shared table used twice gets one optimizer step, with both gradients added."""
    client = FakeClient()
    table = ps_paddle.Embedding(client, "t", 1, optimizer=SGD)
    trainer = ps_paddle.Trainer(client, paddle.nn.LayerList([table]))
    one, two = table(paddle.to_tensor([1, 2])), table(paddle.to_tensor([2, 3]))
    trainer.step(one.sum() + 10 * two.sum())
    ((_, keys, grads),) = client.pushes
    assert dict(zip(keys.tolist(), grads[:, 0].tolist(), strict=True)) == {1: 1, 2: 11, 3: 10}
    assert client.steps == 1


def test_parameters_are_views_of_the_pulled_vector() -> None:
    """Pulling writes where the layer reads; nothing is copied."""
    client = FakeClient()
    layer = paddle.nn.LayerList([paddle.nn.Linear(3, 2), paddle.nn.Linear(1, 1)])
    before = layer[0].weight.numpy().copy()
    dense = ps_paddle.DenseParameters(client, layer, optimizer=SGD)
    assert layer[0].weight.data_ptr() == dense.flat.ctypes.data
    for _ in range(2):
        layer[0](paddle.ones([1, 3])).sum().backward()
        dense.push()
        dense.pull()
    assert np.allclose(layer[0].weight.numpy(), before - 2.0)
    assert not layer[0].weight.stop_gradient


@pytest.mark.parametrize("strategy", ["sync", "half_async", "geo"])
def test_unused_parameters_are_left_alone_as_paddle_leaves_them(strategy: str) -> None:
    """Adam's momentum would move them, and their age would grow."""
    paddle.seed(1)
    layer = paddle.nn.LayerList([paddle.nn.Linear(3, 1) for _ in range(3)])
    alone = copy.deepcopy(layer)
    rule = paddle.optimizer.Adam(0.1, parameters=alone.parameters())
    x = paddle.linspace(-1, 1, 3)
    with servers(2) as endpoints, Client(endpoints, strategy=strategy) as client:
        trainer = ps_paddle.Trainer(client, layer, optimizer=spec_of(rule))
        for used in ([0, 1, 2], [0], [0, 2], [0], [1, 2]):
            before = [p.numpy().copy() for p in layer.parameters()]
            for trained in (layer, alone):
                sum(trained[i](x).sum() ** 2 for i in used).backward()
            trainer.step()
            rule.step()
            rule.clear_grad(set_to_zero=False)
            for number, (was, now) in enumerate(zip(before, layer.parameters(), strict=True)):
                assert np.array_equal(was, now.numpy()) == (number // 2 not in used)
        for mine, wanted in zip(layer.parameters(), alone.parameters(), strict=True):
            assert np.allclose(mine.numpy(), wanted.numpy(), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:When training, we now always track")
def test_running_statistics_are_with_the_servers() -> None:
    """BatchNorm's are parameters that are not trained; each trainer would keep its own."""
    with servers(2) as endpoints, Client(endpoints, strategy="half_async") as client:
        layer, alone = (paddle.nn.BatchNorm1D(2) for _ in range(2))
        trainer = ps_paddle.Trainer(client, layer, optimizer="sgd", lr=0.0)
        for number in range(3):
            batch = paddle.to_tensor(np.random.default_rng(number).random((8, 2), np.float32))
            alone(batch)
            trainer.step(layer(batch).sum())
        other = paddle.nn.BatchNorm1D(2)
        ps_paddle.Trainer(client, other, optimizer="sgd", lr=0.0)
        for norm in (layer, other):
            assert np.allclose(norm._mean.numpy(), alone._mean.numpy(), rtol=0, atol=1e-6)
            assert np.allclose(norm._variance.numpy(), alone._variance.numpy(), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:When training, we now always track")
def test_a_state_dict_that_is_set_goes_to_the_servers(tmp_path: Path) -> None:
    """Paddle has no hook for it: dense.set() says it; later pulls still write where it reads."""
    batch = paddle.to_tensor(np.random.default_rng(1).random((8, 2), np.float32))
    with servers(2) as endpoints, Client(endpoints, strategy="half_async") as client:
        layer = paddle.nn.Sequential(paddle.nn.BatchNorm1D(2), paddle.nn.Linear(2, 1))
        trainer = ps_paddle.Trainer(client, layer, optimizer="sgd", lr=0.1)
        trainer.step(layer(batch).sum())
        paddle.save(layer.state_dict(), str(tmp_path / "model.pdparams"))
        saved = {name: one.numpy().copy() for name, one in layer.state_dict().items()}
        trainer.step(layer(batch).sum())
        assert not np.array_equal(layer[1].bias.numpy(), saved["1.bias"])
        layer.set_state_dict(paddle.load(str(tmp_path / "model.pdparams")))
        trainer.dense.set()
        trainer.dense.pull()
        for name, one in layer.state_dict().items():
            assert np.array_equal(one.numpy(), saved[name]), name
        layer.eval()
        trainer.step(layer[1](batch).sum())
        assert np.allclose(layer[1].bias.numpy(), saved["1.bias"] - 0.8, rtol=0, atol=1e-6)
        assert np.array_equal(layer[0]._mean.numpy(), saved["0._mean"])


def test_ids_of_the_wrong_type_are_told() -> None:
    """A float id would lose digits; int32 ones are widened, as the client does."""
    layer = ps_paddle.Embedding(FakeClient(), "t", 4, optimizer=SGD)
    with pytest.raises(UsageError, match="keys are float32"):
        layer(paddle.zeros([3]))
    narrow = layer(paddle.to_tensor([-5], dtype="int32"))
    assert np.array_equal(narrow.numpy(), layer(paddle.to_tensor([-5])).numpy())


@pytest.mark.parametrize("bad", ["table", "dense", "both"])
def test_a_batch_with_nan_is_refused_whole_and_training_goes_on(bad: str) -> None:
    """Either part alone makes the batch a bad one; nothing of it may stay behind."""
    client = FakeClient()
    fine = ps_paddle.Embedding(client, "fine", 1, optimizer=SGD)
    table = ps_paddle.Embedding(client, "t", 1, optimizer=SGD)
    mlp = paddle.nn.Linear(1, 1, bias_attr=False)
    trainer = ps_paddle.Trainer(client, paddle.nn.LayerList([fine, table, mlp]), optimizer=SGD)
    before = trainer.dense.flat.copy()
    one = paddle.to_tensor([1])

    def loss(weight: float, dense: float) -> paddle.Tensor:
        rows = fine(one).sum() + weight * table(one).sum()
        return rows + dense * mlp(paddle.ones([1, 1])).sum()

    nan = float("nan")
    with pytest.raises(RequestError, match="NaN"):
        trainer.step(loss(1.0 if bad == "dense" else nan, 1.0 if bad == "table" else nan))
    assert (client.pushes, client.steps) == ([], 0)
    assert np.array_equal(trainer.dense.flat, before)
    trainer.step(loss(1.0, 1.0))
    assert [(name, grads.tolist()) for name, _, grads in client.pushes] == [
        ("fine", [[1.0]]),
        ("t", [[1.0]]),
    ]
    assert np.array_equal(trainer.dense.flat, before - 1.0)


def test_a_number_as_loss_is_told() -> None:
    """An AttributeError of a float says less."""
    with pytest.raises(UsageError, match="got a float"):
        ps_paddle.Trainer(FakeClient(), paddle.nn.Linear(1, 1)).step(1.0)


def test_an_lr_scheduler_of_paddle_is_followed() -> None:
    """Given as lr, as Paddle's optimizers take it as learning_rate; with and without a Trainer."""
    with servers(2) as endpoints, Client(endpoints, strategy="half_async") as client:
        decay = paddle.optimizer.lr.StepDecay(1.0, step_size=2, gamma=0.5)
        table = ps_paddle.Embedding(client, "t", 1, optimizer="sgd", lr=decay)
        alone = ps_paddle.Embedding(client, "alone", 1, optimizer="sgd", lr=decay)
        mlp = paddle.nn.Linear(1, 1, bias_attr=False)
        layer = paddle.nn.LayerList([table, mlp])
        trainer = ps_paddle.Trainer(client, layer, optimizer="sgd", lr=decay)
        one = paddle.to_tensor([7])

        def values() -> list[float]:
            return [tensor.item() for tensor in (table(one), alone(one), mlp.weight)]

        before = values()
        for _ in range(4):
            trainer.step(table(one).sum() + alone(one).sum() + mlp(paddle.ones([1, 1])).sum())
            decay.step()
        assert np.subtract(before, values()).tolist() == pytest.approx([3.0] * 3, abs=1e-6)


def test_fleets_optimizer_follows_the_scheduler_of_the_one_it_was_given() -> None:
    """As with Paddle's own fleet."""
    client = FakeClient()
    layer = paddle.nn.Linear(1, 1)
    decay = paddle.optimizer.lr.StepDecay(1.0, step_size=1, gamma=0.5)
    inner = paddle.optimizer.SGD(decay, parameters=layer.parameters())
    optimizer = DistributedOptimizer(inner, layer)
    optimizer.begin(client)
    assert optimizer.spec.lr == 1.0
    for _ in range(2):
        optimizer.minimize(layer(paddle.ones([1, 1])).sum())
        decay.step()
    assert client.rates == [("dense", 1.0), ("dense", 0.5)]


# A script in the order of Paddle 2.6's documents, in dygraph; its import of fleet alone is ours.
SCRIPT = """
import sys
import paddle
from paddock.ps import fleet

class WideDeep(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.wide = paddle.nn.Linear(4, 1)
        self.embedding = paddle.nn.Embedding(50, 8)
        self.deep = paddle.nn.Sequential(
            paddle.nn.Linear(16, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 1)
        )

    def forward(self, ids, dense):
        return self.wide(dense) + self.deep(self.embedding(ids).flatten(1))

fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
paddle.seed(fleet.worker_index() if fleet.is_worker() else 0)
model = WideDeep()
strategy = fleet.DistributedStrategy()
strategy.a_sync = False
optimizer = paddle.optimizer.Adam(learning_rate=0.05, parameters=model.parameters())
optimizer = fleet.distributed_optimizer(optimizer, strategy)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
elif fleet.is_worker():
    fleet.init_worker()
    ids = paddle.arange(64).reshape([32, 2]) % 50
    dense = paddle.linspace(-1, 1, 128).reshape([32, 4])
    label = (ids[:, :1] % 4 < 2).astype("float32")
    for _ in range(40):
        cost = paddle.nn.functional.binary_cross_entropy_with_logits(model(ids, dense), label)
        cost.backward()
        optimizer.step()
        optimizer.clear_grad()
        print(f"{cost.item():.6f}")
    if fleet.is_first_worker():
        fleet.save_persistables(sys.argv[1])
    fleet.stop_worker()
"""


def test_a_fleet_script_of_the_2_6_documents_runs_with_its_import_changed(tmp_path: Path) -> None:
    """distributed_optimizer() before anybody is a server or a worker; no client is handed about."""
    script, saved = tmp_path / "script.py", tmp_path / "saved"
    script.write_text(SCRIPT)
    (port,) = free_ports(1)
    job = {"PADDLE_PSERVERS_IP_PORT_LIST": f"127.0.0.1:{port}", "PADDLE_TRAINERS_NUM": "2"}
    roles = [
        {"TRAINING_ROLE": "PSERVER", "POD_IP": "127.0.0.1", "PADDLE_PORT": str(port)},
        {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "0"},
        {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "1"},
    ]
    server, *trainers = finish(
        [
            subprocess.Popen(
                [sys.executable, str(script), str(saved)],
                env=environment(**job, **role),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for role in roles
        ]
    ).output
    assert "is ready" in server
    one, other = ([float(cost) for cost in re.findall(r"^[\d.]+$", t, re.M)] for t in trainers)
    assert len(one) == 40
    assert one == other  # Both began with the values of trainer 0.
    assert one[-1] < one[0] / 2
    assert list(saved.iterdir())


def test_a_static_program_is_told_what_to_write() -> None:
    """Paddle's scripts call minimize() before they know whether they are a server."""
    layer = paddle.nn.Linear(1, 1)
    optimizer = DistributedOptimizer(paddle.optimizer.SGD(0.1, parameters=layer.parameters()))
    with pytest.raises(UsageError, match=r"fleet\.init_worker\(\) was not called before") as caught:
        optimizer.minimize(layer(paddle.ones([1, 1])).sum())
    assert "for each batch optimizer.minimize(loss)" in caught.value.hint
    paddle.enable_static()
    try:
        static = paddle.optimizer.SGD(0.1)
    finally:
        paddle.disable_static()
    with pytest.raises(UsageError, match="SGD has no parameters") as caught:
        ps_paddle.module_of(static)
    assert caught.value.hint == "SGD(..., parameters=model.parameters())"


def test_a_collection_gives_what_its_tables_give_alone() -> None:
    """Forward and gradients, of two tables that share a feature."""
    client = FakeClient()
    user, item = SparseSpec("user", 2, SGD), SparseSpec("item", 3, SGD)
    bags = [ps_paddle.Bags(user, ("a",)), ps_paddle.Bags(item, ("a", "b"), "mean")]
    layer = ps_paddle.EmbeddingCollection(client, bags)
    trainer = ps_paddle.Trainer(client, paddle.nn.LayerList([layer]))
    ids, lengths = paddle.to_tensor([5, 5, 7, 5]), paddle.to_tensor([2, 0, 1, 1])
    out = layer(ps_paddle.KeyedJagged(["a", "b"], ids, lengths))
    alone = ps_paddle.Embedding(FakeClient(), item, pooling="mean")
    wanted = alone(paddle.to_tensor([7, 5]), paddle.to_tensor([0, 1]))
    assert list(out) == ["a@user", "a@item", "b"]
    assert np.allclose(out["b"].numpy(), wanted.numpy())
    assert client.pulled == [("user", 1), ("item", 2)]
    trainer.step(out["a@user"].sum() + out["b"].sum())
    assert [(name, keys.tolist(), grads[:, 0].tolist()) for name, keys, grads in client.pushes] == [
        ("user", [5], [2.0]),
        ("item", [5, 7], [1.0, 1.0]),
    ]


def test_a_deep_copy_shares_the_table_and_the_client() -> None:
    """Copies of a layer are made so; a client has sockets and threads."""
    client = FakeClient()
    layer = ps_paddle.Embedding(client, "t", 2, optimizer=SGD, push_in_backward=False)
    layer(paddle.to_tensor([1])).sum().backward()
    twin = copy.deepcopy(paddle.nn.Sequential(layer))[0]
    assert twin.rows.client is client
    assert (layer.rows.forget(), twin.rows.forget()) == (1, 0)


@pytest.mark.parametrize("mode", ["none", "sum", "mean"])
def test_padding_is_zeros_and_no_part_of_a_bag(mode: str) -> None:
    """As paddle.nn.Embedding's; in bags it counts for nothing."""
    client = FakeClient()
    layer = ps_paddle.Embedding(client, "t", 4, optimizer=SGD, mode=mode, padding_idx=0)
    rows = client.pull("t", np.arange(10), distinct=True)
    rows[0] = 0.0
    ids = np.array([[3, 0, 5], [0, 0, 0], [7, 7, 0]])
    wanted = rows[ids]
    if mode != "none":
        wanted = wanted.sum(1)
        if mode == "mean":
            wanted = wanted / np.float32([[2], [1], [2]])
    out = layer(paddle.to_tensor(ids))
    assert np.allclose(out.numpy(), wanted, rtol=0, atol=1e-6)
    out.sum().backward()
    ((_, keys, _),) = client.pushes
    assert keys.tolist() == [3, 5, 7]
    assert not layer(paddle.to_tensor([[0, 0]])).numpy().any()


@pytest.mark.parametrize("padding_idx", [None, 0])
def test_ids_are_summed_with_weights(padding_idx: int | None) -> None:
    """Which have gradients, too; what cannot be had says what is instead of it."""
    client = FakeClient()
    layer = ps_paddle.Embedding(
        client, "t", 4, optimizer=SGD, pooling="sum", padding_idx=padding_idx
    )
    rows = client.pull("t", np.array([3, 5, 7]), distinct=True)
    ids, weights = paddle.to_tensor([[3, 5], [7, 3]]), paddle.to_tensor([[0.5, 2.0], [1.0, -1.0]])
    weights.stop_gradient = False
    out = layer(ids, None, weights)
    wanted = [rows[0] * 0.5 + rows[1] * 2, rows[2] - rows[0]]
    assert np.allclose(out.numpy(), wanted, rtol=0, atol=1e-6)
    out.sum().backward()
    assert np.allclose(weights.grad.numpy(), rows.sum(1)[[[0, 1], [2, 0]]], rtol=0, atol=1e-6)
    ((_, _, grads),) = client.pushes
    assert np.allclose(grads[:, 0], [-0.5, 2.0, 1.0])
    with pytest.raises(UsageError, match="takes no max_norm"):
        ps_paddle.Embedding(client, "u", 4, max_norm=1.0)
