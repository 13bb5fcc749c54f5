"""Model folders, data and loops for the tests of PaddleRec 2.x models."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from paddock.rec.settings import ModelKind, Reading, Task, TrainingRun

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "rec" / "paddlerec2x"


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[prefix + key] = value
    return found


def copy_example(to: Path, examples: int = 640) -> Path:
    """The example's folder with generated data."""
    shutil.copytree(EXAMPLE, to, ignore=shutil.ignore_patterns("data", "output", "__pycache__"))
    spec = importlib.util.spec_from_file_location("make_data", EXAMPLE / "make_data.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(to / "data", examples)
    return to


def run_of(folder: Path, **changes: Any) -> TrainingRun:
    """A run of a folder, from its own config.yaml. changes: dotted keys, with __ for a dot."""
    config = flat(yaml.safe_load((folder / "config.yaml").read_text()))
    config.update({key.replace("__", "."): value for key, value in changes.items()})
    return TrainingRun(
        "train",
        Task.TRAIN,
        ModelKind.DYGRAPH,
        str(folder),
        str(folder / "dygraph_model.py"),
        config=config,
        reading=reading_of(config, "train"),
        test=reading_of(config, "test") if "runner.test_data_dir" in config else None,
        epochs=int(config.get("runner.epochs", 1)),
    )


def reading_of(config: dict[str, Any], which: str) -> Reading:
    """What `train` or `test` reads."""
    word = "train" if which == "train" else "infer"
    return Reading(
        (config[f"runner.{which}_data_dir"],),
        int(config[f"runner.{word}_batch_size"]),
        config.get(f"runner.{word}_reader_path", "reader"),
    )


def plain_losses(folder: Path, steps: int, epochs: int = 1) -> tuple[list[float], dict[str, Any]]:
    """Losses and last weights of the shortest loop over the folder.

    No code of paddock's is in it, but what keeps Paddle's Adam from reading behind its rows.
    """
    import paddle

    from paddock.rec.dygraph.paddle_patches import within_its_rows

    config = flat(yaml.safe_load((folder / "config.yaml").read_text()))
    config["config_abs_dir"] = str(folder)
    with own_modules(folder):
        paddle.seed(12345)
        hooks = __import__("dygraph_model").DygraphModel()
        with paddle.utils.unique_name.guard():
            net = hooks.create_model(config)
            optimizer = hooks.create_optimizer(net, config)
        directory = folder / config["runner.train_data_dir"]
        files = sorted(map(str, directory.iterdir()))
        reader = __import__(config["runner.train_reader_path"])
        loader = paddle.io.DataLoader(
            reader.RecDataset(files, config=config),
            batch_size=config["runner.train_batch_size"],
            drop_last=True,
        )
        losses: list[float] = []
        for _ in range(epochs):
            net.train()
            metrics, _ = hooks.create_metrics()
            for number, batch in enumerate(loader()):
                if number >= steps:
                    break
                optimizer.clear_grad()
                with within_its_rows(optimizer):
                    loss, metrics, _ = hooks.train_forward(net, metrics, batch, config)
                loss.backward()
                optimizer.step()
                losses.append(float(loss))
        weights = {name: np.array(one.numpy()) for name, one in net.state_dict().items()}
    return losses, weights


@contextlib.contextmanager
def own_modules(folder: Path) -> Iterator[None]:
    """The folder leads sys.path; its modules are gone afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(folder) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]


def in_threads(works: list[Callable[[], Any]]) -> list[Any]:
    """The results of works that run at the same time; the first error of any."""
    results: list[Any] = [None] * len(works)
    errors: list[BaseException] = []

    def one(at: int) -> None:
        try:
            results[at] = works[at]()
        except BaseException as error:  # noqa: BLE001  # raised again by the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=one, args=(at,)) for at in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    if errors:
        raise errors[0]
    return results
