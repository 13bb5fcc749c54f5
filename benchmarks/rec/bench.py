"""Where the benchmarks of `paddock rec` run: the data all sides read, and one run of each side."""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.ps.bench import ROOT, Bench
from benchmarks.ps.group import ChildFailed, Group
from benchmarks.ps.machine import Others
from benchmarks.ps.peer.install import clean_environment
from benchmarks.ps.peer.job import peer_job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from benchmarks.ps.figure import Figure

    # Whose samples, of which figures, and what adds them.
    Task = tuple[str, Sequence[Figure], Callable[[], None]]

HERE = Path(__file__).resolve().parent
DATA = ROOT / "benchmarks" / "results" / "rec-data"
LEAST_SECONDS = 15.0  # for a run that was begun within its part's time
FILES = 4  # each trainer reads every n-th
EXAMPLES, QUICK_EXAMPLES = 100_000, 10_000
VOCABULARY = 10_000  # categories of each of 26 slots
BATCH = 512
EPOCH = re.compile(r"epoch (\d+) done, (.*), ([\d,]+) examples in .* \(([\d,]+) examples/s\)")
TEST = re.compile(r"^test, ([^(\n]*[^(\s])", re.MULTILINE)  # behind it, the best there is


class RecBench(Bench):
    """Adds to the parameter server's bench what runs a recipe, its data, and a limit of time."""

    seconds = 480.0  # for all parts
    _until = float("inf")  # of the part that runs

    def rounds(self, share: float, count: int, tasks: Sequence[Task]) -> None:
        """Carry out the tasks in order, `count` times around, in this share of all the time.

        What there is no time for is left out, and its figures say so. A task is begun again only
        where it would end in time; --quick: once, without a limit.
        """
        begun = time.monotonic()
        self._until = float("inf") if self.quick else begun + share * self.seconds
        took = [0.0] * len(tasks)
        for number in range(1 if self.quick else count):
            if number == 0 or time.monotonic() + min(took) < self._until:
                self.wait_idle()
            for place, (_, figures, task) in enumerate(tasks):
                at = time.monotonic()
                if at + took[place] >= self._until:
                    continue
                others = Others()
                task()
                took[place] = time.monotonic() - at
                for figure in figures:
                    figure.busy.append(round(others.cores(), 2))
        for place, (side, figures, _) in enumerate(tasks):
            for figure in figures:
                if not took[place]:
                    figure.notes[side] = "left out: no time"

    @property
    def limit_seconds(self) -> float:
        """Of a run that begins now."""
        return min(400.0, max(LEAST_SECONDS, self._until - time.monotonic()))

    @property
    def examples(self) -> int:
        """Of an epoch, over all trainers."""
        return QUICK_EXAMPLES if self.quick else EXAMPLES

    def clicks(self, examples: int = 0, *, seed: int = 1, form: str = "slots") -> Path:
        """A folder of generated clicks, as slot text or tsv; what is there is kept."""
        from paddock.data.generate.write import GenerateRequest, generate

        count = examples or self.examples
        folder = DATA / f"criteo-{form}-{count}-{seed}"
        if not (folder / "manifest.json").exists():
            wanted = GenerateRequest("criteo", folder, count, FILES, seed, VOCABULARY, form)
            generate(wanted, lambda done, whole: None)
        return folder

    def ours(
        self, model: str, options: dict[str, object], *, workers: int = 1, servers: int = 1
    ) -> list[list[dict[str, float]]]:
        """One `paddock rec`: by worker its epochs {rate, loss, auc}; [] when it failed.

        servers: 0 is engine single. A `test` line of worker 0 becomes one more entry of its own.
        """
        with self.group() as group:
            engine = "local_cluster" if servers else "single"
            told = {
                "engine": engine, "server_num": servers, "worker_num": workers,
                "runner.train_batch_size": BATCH, "runner.print_interval": 100,
                "runner.train_data_dir": self.clicks(), **options,
            }  # fmt: skip
            words = [w for key, value in told.items() for w in ("-o", f"{key}={value}")]
            argv = [sys.executable, "-m", "paddock", "rec", "-m", model, *words]
            env = {**clean_environment(), "PYTHONPATH": str(self.source)}
            env.pop("PYTHONDONTWRITEBYTECODE", None)
            child = group.start("rec", argv, env)
            try:
                child.wait(self.limit_seconds)
            except ChildFailed as error:
                child.kill(signal.SIGTERM)  # so that it ends what it has started
                self.failed(f"ours: {model} {told}", error)
                return []
            if "nothing reads" in child.text():  # It would measure something else than it says.
                self.failed(f"ours: {model} {told}", RuntimeError(child.text()[:500]))
                return []
            logs = sorted(Path(group.folder).glob("log/**/workerlog.*"))
            texts = [path.read_text("utf-8", "replace") for path in logs] or [child.text()]
            return [epochs_of(texts[0])]  # Its lines are over all workers.

    def peers(
        self, model: str, reader: str, examples: int, *, workers: int = 1, epochs: int = 2
    ) -> list[list[dict[str, Any]]]:
        """One run of the peer's trainers; [] when it failed."""
        assert self.peer is not None
        script = str(HERE / "peer" / "train.py")
        words = ["--data", str(self.clicks(examples)), "--model", model, "--reader", reader]
        words += ["--batch", str(BATCH), "--epochs", str(epochs)]
        try:
            with (
                self.group() as group,
                peer_job(group, self.peer, script, words, trainers=workers) as job,
            ):
                return job.run_trainers(words, self.limit_seconds)
        except (ChildFailed, TimeoutError) as error:
            self.failed(f"peer: {model}, {reader}", error)
            return []
        finally:
            self.clean()

    def script(self, name: str, words: list[str]) -> list[dict[str, Any]]:
        """What a script of this folder measured, run alone by this Python; [] when it failed."""
        with self.group() as group:
            return self._script(group, name, words)

    def _script(self, group: Group, name: str, words: list[str]) -> list[dict[str, Any]]:
        argv = [sys.executable, "-u", str(HERE / name), *words]
        env = {**clean_environment(), "PYTHONPATH": f"{self.source}:{ROOT}", "OMP_NUM_THREADS": "1"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            return group.start(Path(name).stem, argv, env).wait(self.limit_seconds)
        except ChildFailed as error:
            self.failed(name, error)
            return []


def epochs_of(text: str) -> list[dict[str, float]]:
    """The numbers of a worker's `epoch N done` lines, and of its test line.

    >>> epochs_of("epoch 0 done, loss 0.6, auc 0.7, 4,000 examples in 2.0 s (2,000 examples/s)")
    [{'loss': 0.6, 'auc': 0.7, 'rate': 2000.0}]
    """
    found = []
    for _, numbers, _, rate in EPOCH.findall(text):
        found.append({**numbers_of(numbers), "rate": float(rate.replace(",", ""))})
    return found + [numbers_of(each) for each in TEST.findall(text)]


def numbers_of(words: str) -> dict[str, float]:
    """
    >>> numbers_of("loss 0.6, auc 0.7")
    {'loss': 0.6, 'auc': 0.7}
    """
    pairs = (word.rsplit(" ", 1) for word in words.split(", "))
    return {name: float(value) for name, value in pairs}
