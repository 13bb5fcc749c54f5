"""Workers of the training loop under `paddock launch`, killed by kill -9: each batch once."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from paddock.rec.config.args import RecArgs
from paddock.rec.engines import command
from paddock.rec.settings import Cluster, EngineKind, Recipe
from real.conftest import need_module

if TYPE_CHECKING:
    from local.jobs import World

# A learner that adds one to a row of its own for each batch; 30 batches an epoch and worker.
TRAIN = """
import types
from paddock import ps
from paddock.rec import learner, worker
from paddock.rec.learner import ChunkSet, SourceBatch
from paddock.rec.settings import ModelKind, Reading, StrategySpec, Task, TrainingRun

BATCHES, EPOCHS = 30, 2
PLAIN, ZEROS = ps.OptimizerSpec("sgd", 1.0), ps.InitialSpec("zeros")

class Adding:
    metrics = {}
    def __init__(self, client):
        self.client = client
        client.create(ps.SparseSpec("rows", 1, PLAIN, ZEROS, merge="sum"))
    def source(self, reading, place=None): return Share()
    def prefetch(self, batch): pass
    def refresh(self): pass
    def train(self, batch):
        tell("batch", RANK, ATTEMPT, batch)
        self.trained = getattr(self, "trained", 0) + 1
        if self.trained == 8 and ATTEMPT >= 0 and not os.path.exists(f"killed-{RANK}"):
            open(f"killed-{RANK}", "w").close()
            if RANK == int(os.environ["VICTIM"]):
                tell("ready", RANK, os.getpid())
                forever()
        self.client.push("rows", [batch], [[-1.0]])
        self.client.step()
        return {"loss": 1.0}

class Share:
    def open(self, epoch, position):
        for number in range(position or 0, BATCHES):
            yield SourceBatch(10000 * RANK + 1000 * epoch + number, 1, number + 1)
    def chunk_set(self):
        def read(epoch, chunk, skip):  # Ten chunks of six batches.
            first = 10000 * (chunk // 5) + 1000 * epoch + 6 * (chunk % 5)
            yield from ([first + number] for number in range(skip, 6))
        return ChunkSet("d", 10, 1, str, read, lambda parts: (parts[0][0], 1))

def load_model(run, client, place):
    return Adding(client)

sys.modules["counting"] = types.ModuleType("counting")
sys.modules["counting"].load_model = load_model
learner.LOADERS[ModelKind.BUNDLED] = "counting"
reading = Reading(("x",), 1, assignment=os.environ["ASSIGNMENT"])
run = TrainingRun("test", Task.TRAIN, ModelKind.BUNDLED, ".", "x", reading=reading,
          epochs=EPOCHS, strategy=StrategySpec(os.environ["STRATEGY"], 4), print_interval=1)

def check(team, finish=worker.PsWorkers.finish):
    team.meet("all", 0)
    firsts = [10000 * w + 1000 * e for w in range(2) for e in range(EPOCHS)]
    keys = [first + n for first in firsts for n in range(BATCHES)]
    tell("trained", RANK, *sorted(set(team.client.pull("rows", keys)[:, 0].tolist())))
    team.meet("told", 0)
    finish(team)

worker.PsWorkers.finish = check
worker.carry_out(run)
"""


@pytest.mark.parametrize(
    ("strategy", "victim", "assignment"),
    [
        ("sync", 0, "blocks"),
        ("sync", 1, "dynamic"),
        ("async", 1, "blocks"),
        ("async", 0, "dynamic"),
    ],
)
def test_a_killed_worker_goes_on_and_each_batch_is_trained_once(
    world: World, strategy: str, victim: int, assignment: str
) -> None:
    """As `paddock rec` starts them they are started again, and find what they have to read."""
    need_module("numpy")
    recipe = Recipe(EngineKind.LOCAL_CLUSTER, (), Cluster(servers=1, workers=2))
    chosen = command(recipe, RecArgs("c.yaml"), "c.yaml", "python")
    words = chosen.words
    running = world.start(
        *words[words.index("launch") + 1 : words.index("-m", 4)],
        world.script(TRAIN),
        env={
            **chosen.env,
            "STRATEGY": strategy,
            "VICTIM": str(victim),
            "ASSIGNMENT": assignment,
        },
    )
    (told,) = world.events.wait("ready")
    os.kill(int(told[2]), signal.SIGKILL)
    ended = running.end()
    assert (ended.code, ended.left) == (0, []), ended.console
    found = {event[2:] for event in world.events.all("trained")}
    assert found == {("1.0",)}, world.events.all("trained")
    # Both go on: had they begun anew, all 120 batches would have been computed again.
    again = [event for event in world.events.all("batch") if event[2] != "0"]
    assert 0 < len(again) < 120
    said = (world.log_dir / "workerlog.0").read_text()
    assert said.count("epoch 0, batch 0,") == 1, said
    done = dict(re.findall(r"^epoch (\d) done, (.*)loss 1.0000", said, re.MULTILINE))
    # Where chunks are leased, the other worker may have trained nearly all of epoch 0 before.
    restarted = "0" if assignment == "blocks" or done.get("1") == "" else "1"
    assert done == {"0": "", "1": ""} | {restarted: "60 examples; since the restart "}, said
