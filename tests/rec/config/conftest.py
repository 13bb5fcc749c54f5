"""Folders as PaddleRec's users have them, and a package with one bundled model."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.errors import UsageError
from paddock.rec.config.folder import ResolveContext
from paddock.rec.config.resolve import resolve
from paddock.rec.settings import Recipe

DYGRAPH = """
from net import Layer


class DygraphModel:
    def create_model(self, config):
        return Layer(config["hyper_parameters.fc_sizes"], config["hyper_parameters.rows"])
"""
NET = """
import paddle


class Layer(paddle.nn.Layer):
    def forward(self, x):
        return paddle.static.nn.fc(x) if self.is_static else x
"""
HOOKS = """
import paddle
from paddlerec.core.model import ModelBase


class Model(ModelBase):
    def net(self, inputs, is_infer=False):
        return paddle.nn.functional.relu(inputs[self.rows])
"""
FLUID = """
import math

import paddle.fluid as fluid
from paddlerec.core.model import ModelBase


class Model(ModelBase):
    def net(self, inputs, is_infer=False):
        x = fluid.embedding(inputs[0], [10, 9])
        return fluid.layers.fc(x, size=2)
"""
BUNDLED = """
runner:
  train_data_dir: data
  test_data_dir: data
  train_reader_path: criteo
  train_batch_size: 512
  epochs: 4
  framework: torch
hyper_parameters:
  optimizer: {class: Adam, learning_rate: 0.001}
  fc_sizes: [512, 256]
"""
TWO = """
runner:
  train_data_dir: data
  train_reader_path: my_reader
  train_batch_size: 2
  epochs: 3
hyper_parameters:
  fc_sizes: [4]
  rows: 10
"""


@dataclass
class Bench:
    """A directory to put files into, and the words' world there."""

    root: Path
    env: dict[str, str]

    def put(self, files: Mapping[str, str]) -> None:
        """Write files, by their names below the directory; "data/" is one with a file in it."""
        for name, text in files.items():
            path = self.root / (f"{name}part-0" if name.endswith("/") else name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    @property
    def world(self) -> ResolveContext:
        """What the words are resolved in."""
        return ResolveContext(str(self.root), self.env, self.root / "site/paddock/rec/models")

    def resolve(self, *words: str) -> Recipe:
        """The recipe of a command line."""
        return resolve(words, self.world)

    def problems(self, *words: str) -> str:
        """Every problem of a command line that is wrong, with its hint."""
        with pytest.raises(UsageError) as caught:
            self.resolve(*words)
        assert caught.value.exit_code == 2
        return "\n".join(f"{p.message} | {p.hint}" for p in caught.value.problems)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """One model of each contract: `two` (2.x), `hooks`, and the bundled rank/dnn."""
    found = Bench(tmp_path, {})
    found.put({
        "site/paddock/rec/models/rank/dnn/config.yaml": BUNDLED,
        "site/paddock/rec/models/rank/dnn/model.py": "rows = fc_sizes = optimizer = 1\n",
        "site/paddock/rec/models/rank/dnn/data/": "",
        "two/config.yaml": TWO,
        "two/dygraph_model.py": DYGRAPH,
        "two/net.py": NET,
        "two/my_reader.py": "",
        "two/data/": "",
        "hooks/model.py": HOOKS,
        "hooks/reader.py": "",
        "hooks/data/": "",
        "hooks/test_data/": "",
    })  # fmt: skip
    return found
