"""A PaddleRec 2.x folder trained alone: the numbers of a plain loop, its files, its errors."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.rec.learner import ReshardableSource, Source, WorkerRank
from rec.dygraph.folders import copy_example, own_modules, plain_losses, run_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Paddle 3.3 warns of a missing ccache when imported.
    paddle = pytest.importorskip("paddle")
from paddock.rec.dygraph.learner import DygraphFolder, load_model
from paddock.rec.dygraph.paddle_patches import as_in_paddle_2, within_its_rows

pytestmark = pytest.mark.real


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example, with data."""
    return copy_example(tmp_path / "model")


def test_losses_are_those_of_a_plain_loop(folder: Path) -> None:
    """Bit for bit: same seed, same order, nothing of ours in between."""
    with as_in_paddle_2():
        wanted, weights = plain_losses(folder, 100, epochs=2)
    with own_modules(folder):
        run = run_of(folder)
        opened = load_model(run, None, WorkerRank())
        assert run.reading is not None
        source = opened.source(run.reading)
        got = [
            opened.train(item.batch)["loss"]
            for epoch in range(2)
            for item in source.open(epoch, None)
        ]
        opened.save(str(folder))
    assert got == wanted and len(got) == 2 * (2 * 640 // 64)
    saved = paddle.load(str(folder / "rec.pdparams"))
    assert set(saved) == set(weights)
    assert all((np.array(saved[name]) == weights[name]).all() for name in weights)


def test_batches_go_on_behind_a_position(folder: Path) -> None:
    """A run that comes back trains what comes next."""
    with own_modules(folder):
        run = run_of(folder)
        assert run.reading is not None
        source = load_model(run, None, WorkerRank()).source(run.reading)
        items = list(source.open(0, None))
        rest = list(source.open(0, items[4].position))
    assert len(rest) == len(items) - 5
    assert (rest[0].batch[1].numpy() == items[5].batch[1].numpy()).all()


def test_without_a_batch_size_an_item_of_the_data_set_is_a_batch(folder: Path) -> None:
    """Data sets that draw tasks, or pairs, give whole batches."""
    with own_modules(folder):
        run = run_of(folder, runner__train_batch_size=0)
        assert run.reading is not None
        items = list(load_model(run, None, WorkerRank()).source(run.reading).open(0, None))
    assert len(items) == 2 * 640 and items[0].batch[0].shape == [1]


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_read_every_example_once(folder: Path, workers: int) -> None:
    """Two files: of two workers each has one, of three each has a third of the batches."""
    seen = []
    with own_modules(folder):
        run = run_of(folder)
        assert run.reading is not None
        for worker in range(workers):
            source = load_model(run, None, WorkerRank(worker, workers)).source(run.reading)
            seen += [item.batch[-1].numpy() for item in source.open(0, None)]
        whole = [
            item.batch[-1].numpy()
            for item in load_model(run, None, WorkerRank()).source(run.reading).open(0, None)
        ]
    rows = [sorted(map(tuple, np.concatenate(batches).tolist())) for batches in (seen, whole)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 3), (3, 1)])
def test_other_workers_read_what_is_left(folder: Path, before: int, after: int) -> None:
    """Each example once, also when they are interrupted in turn."""
    seen = []
    with own_modules(folder):
        run = run_of(folder)
        assert run.reading is not None

        def source(worker: int, workers: int) -> Source:
            assert run.reading is not None
            return load_model(run, None, WorkerRank(worker, workers)).source(run.reading)

        whole = [item.batch[-1].numpy() for item in source(0, 1).open(0, None)]
        behind: list[object | None] = []
        for worker in range(before):
            first = list(source(worker, before).open(0, None))[: 2 + worker]
            seen += [item.batch[-1].numpy() for item in first]
            behind.append(first[-1].position)
        for worker in range(after):
            dealing = source(worker, after)
            assert isinstance(dealing, ReshardableSource)
            mine = list(dealing.open(0, dealing.resharded(0, behind)))
            again = list(dealing.open(0, mine[0].position))
            assert len(again) == len(mine) - 1
            seen += [item.batch[-1].numpy() for item in [mine[0], *again]]
    rows = [sorted(map(tuple, np.concatenate(batches).tolist())) for batches in (seen, whole)]
    assert rows[0] == rows[1]


def test_a_checkpoint_gives_the_same_scores(folder: Path) -> None:
    """As PaddleRec's infer does: load the epoch, walk the test data, print the AUC."""
    with own_modules(folder):
        run = run_of(folder)
        opened = load_model(run, None, WorkerRank())
        assert run.reading is not None and run.test is not None
        for item in opened.source(run.reading).open(0, None):
            opened.train(item.batch)
        epoch = folder / "output" / "0"
        epoch.mkdir(parents=True)
        opened.save(str(epoch))
        auc = []
        for learner in (opened, load_model(run, None, WorkerRank())):
            learner.load(str(epoch))
            learner.metrics["auc"].clear()
            for item in opened.source(run.test).open(0, None):
                learner.evaluate(item.batch)
            auc.append(learner.metrics["auc"].value())
    assert auc[0] == auc[1] > 0.6


def test_the_auc_of_two_workers_is_that_of_all_examples(folder: Path) -> None:
    """Counts of Paddle's own metric add up."""
    with own_modules(folder):
        run = run_of(folder)
        assert run.test is not None
        whole, *parts = (load_model(run, None, WorkerRank()) for _ in range(3))
        for number, item in enumerate(whole.source(run.test).open(0, None)):
            whole.evaluate(item.batch)
            parts[number % 2].evaluate(item.batch)
    states = [part.metrics["auc"].state() for part in parts]
    auc = whole.metrics["auc"]
    before = parts[0].metrics["auc"].value()
    assert parts[0].metrics["auc"].value(states[0] + states[1]) == auc.value()
    assert parts[0].metrics["auc"].value() == before


def test_a_metric_of_the_models_own_is_judged_where_one_worker_is(folder: Path) -> None:
    """Its counts are not known, so it is not added up; each epoch begins it anew."""
    own = "        return [paddle.metric.Auc(), Own()], ['auc', 'own']"
    text = (folder / "dygraph_model.py").read_text()
    text += f"\n    def create_metrics(self):\n{own}\n\n\nclass Own:\n    resets = 0\n"
    text += "    def reset(self):\n        self.resets += 1\n"
    text += "    def accumulate(self):\n        return 0.5 + self.resets\n"
    (folder / "dygraph_model.py").write_text(text)
    with own_modules(folder):
        metric = load_model(run_of(folder), None, WorkerRank()).metrics["own"]
    assert len(metric.state()) == 0 and metric.value(metric.state()) == 0.5
    metric.clear()
    assert metric.value() == 1.5


def test_a_missing_package_is_one_line(folder: Path) -> None:
    """Which file, which line, what to install."""
    (folder / "net.py").write_text("import math\nimport cv2x.core\n")
    with own_modules(folder), pytest.raises(UsageError, match=r"net\.py:2 imports cv2x") as found:
        DygraphFolder(str(folder), {})
    assert found.value.hint == "pip install cv2x"


def test_what_a_folder_lacks_is_named(folder: Path, tmp_path: Path) -> None:
    """No module, no class, no hook, no files."""
    with pytest.raises(UsageError, match=r"no dygraph_model\.py"):
        DygraphFolder(str(tmp_path), {})
    (folder / "dygraph_model.py").write_text("class DygraphModel:\n    create_model = print\n")
    with own_modules(folder), pytest.raises(UsageError, match="no create_optimizer, create_met"):
        DygraphFolder(str(folder), {})


def test_a_folder_with_its_own_trainer_is_told(folder: Path) -> None:
    """Two of PaddleRec's give an optimizer and more, which its common trainer cannot use, too."""
    path = folder / "dygraph_model.py"
    made = "    def create_optimizer(self, dy_model, config):\n        return None, None\n"
    path.write_text(path.read_text() + made)
    with own_modules(folder), pytest.raises(UsageError, match="create_optimizer gives tuple"):
        load_model(run_of(folder), None, WorkerRank())


def test_files_of_several_kinds_are_read_by_all_workers(folder: Path) -> None:
    """A reader may need one file to understand another; each example is trained once all the same.

    PaddleRec's news models are so: of two workers the one had articles, the other who read them.
    """
    data = folder / "data" / "train"
    (data / "part-1").rename(data / "ids.txt")
    run = run_of(folder)
    assert run.reading is not None
    with own_modules(folder):
        whole, *own = (
            [
                item.batch[-1].numpy().tolist()
                for item in load_model(run, None, place).source(run.reading).open(0, None)
            ]
            for place in (WorkerRank(), WorkerRank(0, 2), WorkerRank(1, 2))
        )
    assert own == [whole[::2], whole[1::2]]


def test_modules_of_two_folders_are_kept_apart(folder: Path, tmp_path: Path) -> None:
    """Both have a net.py; a process may run one after the other."""
    other = copy_example(tmp_path / "other")
    (other / "net.py").write_text((other / "net.py").read_text() + "\nOTHER = True\n")
    with own_modules(folder), own_modules(other):
        DygraphFolder(str(folder), {})
        model = DygraphFolder(str(other), {}).model
        import net

        assert net.OTHER and type(model).__module__ == "dygraph_model"


def test_another_models_checkpoint_is_refused(folder: Path) -> None:
    """By the names and shapes that do not fit."""
    with own_modules(folder):
        load_model(run_of(folder), None, WorkerRank()).save(str(folder))
        wider = load_model(run_of(folder, hyper_parameters__factors=9), None, WorkerRank())
        with pytest.raises(UsageError, match=r"factors\.weight \[5000, 8\], here \[5000, 9\]"):
            wider.load(str(folder))
        with pytest.raises(UsageError, match=r"no rec\.pdparams"):
            wider.load(str(folder / "data"))


def test_truncated_normal_is_cut_at_two_sigma() -> None:
    """And its deviation is that of the cut distribution, 0.8796 of sigma, on both sides of 0."""
    with as_in_paddle_2():
        first = paddle.nn.initializer.TruncatedNormal(0.5, 0.01)
        drawn = paddle.create_parameter([100_000], "float32", default_initializer=first).numpy()
    assert np.abs(drawn - 0.5).max() <= 0.02 + 1e-6 and np.isfinite(drawn).all()
    assert abs(drawn.std() / 0.01 - 0.8796) < 0.01 and abs(drawn.mean() - 0.5) < 1e-4


def test_truncated_normal_draws_the_numbers_of_paddle_2() -> None:
    """Golden: printed by PaddlePaddle 2.6.2 on a CPU, with the seed of PaddleRec's trainer."""
    with as_in_paddle_2():
        paddle.seed(12345)
        first = paddle.nn.initializer.TruncatedNormal(0.0, 0.05)
        drawn = paddle.create_parameter([100, 64], "float32", default_initializer=first).numpy()
    golden = [-0.00799518171697855, 0.05630751699209213, 0.04929677024483681, -0.024914061650633812]
    np.testing.assert_allclose(drawn.ravel()[:4], golden, rtol=1e-6)
    assert abs(drawn.sum(dtype=np.float64) + 4.84349712797939) < 1e-4


def test_floats_and_whole_numbers_compute_floats() -> None:
    """On either side, compared too; afterwards Paddle is as it was."""
    half, two = paddle.to_tensor([0.5]), paddle.to_tensor([2], dtype="int32")
    with as_in_paddle_2():
        made = [half * two, two * half, two - half, half / two, two**half, half * (two > 1)]
        assert all(one.dtype == paddle.float32 for one in made)
        assert [float(one) for one in made[:4]] == [1.0, 1.0, 1.5, 0.25]
        assert bool(half < two) and (two * two).dtype == paddle.int32
        assert float(half * 2) == 1.0 and int(two) == 2
    with pytest.raises(TypeError):
        half * two


def test_scalars_are_put_together_and_gone_names_are_there() -> None:
    """As folders of 2.0 to 2.4 have it; whole tensors are put together as ever."""
    one, row = paddle.to_tensor(1.5), paddle.to_tensor([[1.0, 2.0]])
    with as_in_paddle_2():
        assert paddle.concat([one, one * 2], axis=-1).tolist() == [1.5, 3.0]
        assert paddle.concat(x=(row, row), axis=1).tolist() == [[1.0, 2.0, 1.0, 2.0]]
        assert paddle.is_compiled_with_npu() is False
        from paddle import fluid

        assert row.dtype == fluid.core.VarDesc.VarType.FP32
        assert fluid.layers.gather(row, paddle.to_tensor([0])).tolist() == [[1.0, 2.0]]


def test_adam_moves_no_row_that_nobody_asked_for() -> None:
    """Paddle's own moves one in every fourth first step, at times to NaN."""
    for _ in range(40):
        table = paddle.nn.Embedding(2000, 5, sparse=True)
        adam = paddle.optimizer.Adam(0.001, parameters=table.parameters())
        before = table.weight.numpy().copy()
        with within_its_rows(adam):
            rows = table(paddle.to_tensor([[3, 7], [7, 29]]))
        rows.sum().backward()
        adam.step()
        assert rows.shape == [2, 2, 5]
        assert np.flatnonzero((table.weight.numpy() != before).any(1)).tolist() == [3, 7, 29]


@pytest.mark.parametrize("wrong", ["raise ValueError('line 7')", "sys.exit(3)", "yield [1, 2]"])
def test_a_reader_that_fails_ends_the_run(tmp_path: Path, wrong: str) -> None:
    """Paddle's loader lost its thread, and the job stood still for good."""
    folder = copy_example(tmp_path / "model")
    reader = folder / "criteo_reader.py"
    text = reader.read_text()
    opens = "            with open(path)"
    reader.write_text(text.replace(opens, f"            import sys; {wrong}\n{opens}"))
    run = run_of(folder)
    assert run.reading is not None
    with own_modules(folder), pytest.raises(PaddockError, match=r"\.py:\d+: "):
        list(load_model(run, None, WorkerRank()).source(run.reading).open(0, None))


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            r"pickle.loads(b'cnumpy.gone\nArray\n.')",
            "the pickle is of another numpy: write it anew",
        ),
        ("import numpy.gone", "install the numpy that it was written for"),
    ],
    ids=["pickle", "import"],
)
def test_a_package_of_another_version_is_not_to_be_installed(
    folder: Path, line: str, hint: str
) -> None:
    """It is here: metaheac's pickles name a module that pandas 2 does not have."""
    (folder / "net.py").write_text(f"import pickle\n{line}\n")
    told = r"net\.py:2 needs numpy\.gone, which the numpy that is installed does not have"
    with own_modules(folder), pytest.raises(UsageError, match=told) as found:
        DygraphFolder(str(folder), {})
    assert hint in found.value.hint
