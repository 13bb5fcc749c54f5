"""A recipe holds all that is to be run, alike for all generations of config.yaml. Pure.

`paddock.rec.config` makes a Recipe from files and flags; `engines` turns it into a command of
`paddock launch` or `paddock submit`; the worker program carries out its runs, in order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum

from paddock.ps.wire.values import value_from


class EngineKind(str, Enum):
    """The place where a recipe runs."""

    SINGLE = "single"  # one process, no servers
    LOCAL_CLUSTER = "local_cluster"  # servers and workers on this machine
    CLUSTER = "cluster"  # through `paddock submit`


class Task(str, Enum):
    """The task of a run."""

    TRAIN = "train"
    EVALUATE = "evaluate"


class ModelKind(str, Enum):
    """The kind of a model, by the files of its folder."""

    BUNDLED = "bundled"  # model.py with a description for torch and Paddle, of ours
    DYGRAPH = "dygraph"  # PaddleRec 2.x: dygraph_model.py with DygraphModel
    HOOKS = "hooks"  # PaddleRec 0.1 to 1.8: model.py with Model, in dygraph form


@dataclass(frozen=True)
class ModelFolder:
    """A model's folder. source: the text of all of its Python, which says what it reads."""

    contract: ModelKind
    directory: str
    file: str
    source: str


@dataclass(frozen=True)
class Reading:
    """A reading of data: where examples come from, and how they become batches.

    paths: files, directories, globs or fsspec URLs. reader: a user's .py, or the name of a format
    (`slots`, `criteo`, `csv`, `parquet`). sparse_slots: in the file's order, the label first.
    dense_slots: name -> width. shuffle: examples in memory to draw from, 0 for none. batch_size: 0
    where the reader makes the batches.
    """

    paths: tuple[str, ...]
    batch_size: int
    reader: str = "slots"
    reader_class: str | None = None
    sparse_slots: tuple[str, ...] = ()
    dense_slots: Mapping[str, int] = field(default_factory=dict)
    label: str | None = None
    padding: int = 0
    pipe_command: str | None = None
    loader_processes: int = 0
    shuffle: int = 0
    drop_last: bool = False
    bad_max: int = 0  # lines that are left out, of a worker's epoch; dynamic: of a chunk
    assignment: str = "blocks"  # blocks | modulo | size | dynamic
    aside_max: int | None = None  # dynamic: chunks that cannot be read, of an epoch; None: any


@dataclass(frozen=True)
class Saving:
    """When and where checkpoints and exported models are written; None is never."""

    directory: str | None = None
    every_epochs: int | None = None
    every_steps: int | None = None
    every_minutes: float | None = None
    keep: int = 3
    last: bool = True
    export_directory: str | None = None
    export_every_epochs: int | None = None
    export_last: bool = False


@dataclass(frozen=True)
class StrategySpec:
    """How workers and servers agree: the names of the parameter server's strategies."""

    name: str = "sync"  # sync | async | half_async | geo
    geo_step: int = 100
    threads: int = 1  # of each worker


@dataclass(frozen=True)
class TrainingRun:
    """A training or an evaluation.

    config: every key of the file, flat and dotted, as PaddleRec 2.x models read it.
    hyper: `hyper_parameters` alone, names without the prefix.
    """

    name: str
    task: Task
    contract: ModelKind
    model_directory: str
    model_file: str
    framework: str = "paddle"  # paddle | torch
    config: Mapping[str, object] = field(default_factory=dict)
    hyper: Mapping[str, object] = field(default_factory=dict)
    reading: Reading | None = None
    test: Reading | None = None
    epochs: int = 1
    print_interval: int = 20
    device: str = "cpu"
    seed: int = 12345
    strategy: StrategySpec = StrategySpec()
    saving: Saving = Saving()
    warm_start: str | None = None
    warm_start_missing: str = "fail"  # fail | init | zero: what of the model is not there
    resume: bool = False
    evaluate_from: str | None = None  # a checkpoint, or a directory of them
    evaluate_epochs: tuple[int, int] | None = None
    event_directory: str | None = None  # of TensorBoard or VisualDL


@dataclass(frozen=True)
class Cluster:
    """How many processes, and what a cluster gives each: backend.yaml."""

    backend: str | None = None  # kubernetes | mpi | slurm | ssh | script
    job_name: str = "paddlerec"
    servers: int = 1
    workers: int = 1
    image: str | None = None
    memory: str | None = None
    storage: str | None = None
    cpus: str | None = None
    log_level: int | None = None
    max_restart: int | None = None  # of processes that were killed; None: see engines
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """All that one `paddock rec` does: where, how many, and the runs in order."""

    engine: EngineKind
    runs: tuple[TrainingRun, ...]
    cluster: Cluster = Cluster()
    workspace: str = "."
    sources: Mapping[str, str] = field(default_factory=dict)  # setting -> "config.yaml:12"
    warnings: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The recipe as a text that from_json() reads. Raises TypeError: a date of YAML, bytes."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        """The recipe that to_json() wrote. Raises ValueError for another."""
        found: Recipe = value_from(cls, json.loads(text))
        return found
