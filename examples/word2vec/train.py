"""Predicts a word from the four before it (Bengio et al. 2003), on the parameter server.

    paddock launch --server-num 1 --worker-num 2 train.py

prepare.py has made the workspace; this is started there: alone, by paddock launch, paddock submit
or mpirun. README.md has the commands. Each trainer reads the shards whose number modulo the number
of trainers is its own, tests on its own shards, and prints

    pass 0 batch 100 cost 5.9120 test 5.8035
"""

import argparse
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from paddock import ps
from paddock.ps import torch as ps_torch

CONTEXT = 4
DIM = 32
HIDDEN = 256


class NGram(nn.Module):
    """Four words from one table, a hidden layer, a score for each word of the dictionary."""

    def __init__(self, words: nn.Module, vocab: int) -> None:
        super().__init__()
        self.words = words
        self.hidden = nn.Linear(CONTEXT * DIM, HIDDEN)
        self.dropout = nn.Dropout(0.5)
        self.out = nn.Linear(HIDDEN, vocab)
        for layer in (self.hidden, self.out):
            nn.init.normal_(layer.weight, std=(DIM * 8) ** -0.5)
            nn.init.zeros_(layer.bias)

    def forward(self, context: torch.Tensor) -> torch.Tensor:
        vectors = self.words(context).flatten(1)
        return self.out(self.dropout(torch.sigmoid(self.hidden(vectors))))


def place() -> tuple[int, int]:
    """(rank, size). `paddock` sets Open MPI's variables for its ranks as mpirun does."""
    env = os.environ
    rank, size = env.get("OMPI_COMM_WORLD_RANK"), env.get("OMPI_COMM_WORLD_SIZE")
    return int(rank or env.get("PADDLE_TRAINER_ID", "0")), int(
        size or env.get("PADDLE_TRAINERS_NUM", "1")
    )


def connect(rank: int, size: int, strategy: str) -> AbstractContextManager[ps.Client]:
    """The job's servers; a trainer that is alone has one in its own process."""
    if os.environ.get("PADDLE_PSERVERS_IP_PORT_LIST") or size > 1:
        # Where no servers are named this is an error: trainers that do not know of one another
        # would each learn from their own shards, and nobody would notice.
        return ps.Client(trainer=rank, trainers=size, strategy=strategy)
    return ps.local(strategy)


def shards(folder: str, rank: int, size: int) -> torch.Tensor:
    """int64 (lines, 5) of this trainer's files."""
    names = sorted(Path(folder).glob("*.txt-*"))
    mine = [path for path in names if int(path.name.rpartition("-")[2]) % size == rank]
    if not mine:
        raise SystemExit(f"trainer {rank} of {size}: no shard of {folder} is its own; prepare.py "
                         f"--split_count {size} makes enough")  # fmt: skip
    print(f"trainer {rank} of {size} reads {' '.join(path.name for path in mine)}", flush=True)
    parts = [np.loadtxt(path, np.int64, delimiter=",", ndmin=2) for path in mine]
    return torch.from_numpy(np.concatenate(parts))


def batches(lines: torch.Tensor, size: int, seed: int) -> Iterator[torch.Tensor]:
    """All lines in an order of their own."""
    generator = torch.Generator().manual_seed(seed)
    for part in torch.randperm(len(lines), generator=generator).split(size):
        yield lines[part]


def cost(model: nn.Module, lines: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the fifth word."""
    return functional.cross_entropy(model(lines[:, :CONTEXT]), lines[:, CONTEXT])


def judge(model: nn.Module, lines: torch.Tensor) -> float:
    """The cost on lines that nobody trained on."""
    model.eval()
    with torch.no_grad():
        found = sum(float(cost(model, part)) * len(part) for part in lines.split(4096))
    model.train()
    return found / len(lines)


def save(client: ps.Client, model: NGram, vocab: int, path: Path) -> None:
    """The model as plain PyTorch loads it: NGram(nn.Embedding(vocab, 32), vocab)."""
    state = model.state_dict()
    state["words.weight"] = torch.from_numpy(client.pull("proj", np.arange(vocab)))
    path.parent.mkdir(exist_ok=True)
    torch.save(state, path)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--batch", type=int, default=256, help="lines, of each trainer")
    parser.add_argument("--optimizer", default="adam", choices=("adagrad", "adam", "sgd"))
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--l2", type=float, default=0.0)
    # In sync all trainers need as many batches; shards seldom have as many lines.
    parser.add_argument("--strategy", default="async", choices=("async", "half_async", "geo"))
    parser.add_argument("--log_period", type=int, default=100, help="batches")
    return parser.parse_args()


def main() -> None:
    """Train, test now and then, save."""
    told = options()
    rank, size = place()
    vocab = len(json.loads(Path("word_dict.json").read_text("utf-8")))
    train, test = shards("train_data_dir", rank, size), shards("test_data_dir", rank, size)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with connect(rank, size, told.strategy) as client:
        rows = ps.OptimizerSpec(told.optimizer, told.lr)
        table = ps.SparseSpec("proj", DIM, rows, ps.InitialSpec("normal", 0.001))
        model = NGram(ps_torch.Embedding(client, table), vocab)
        dense = ps.OptimizerSpec(told.optimizer, told.lr, l2=told.l2)
        trainer = ps_torch.Trainer(client, model, optimizer=dense)
        number = 0
        for pass_ in range(told.passes):
            for lines in batches(train, told.batch, pass_ * size + rank):
                loss = cost(model, lines)
                trainer.step(loss)
                number += 1
                if number % told.log_period == 0:
                    print(f"pass {pass_} batch {number} cost {loss.item():.4f} "
                          f"test {judge(model, test):.4f}", flush=True)  # fmt: skip
        client.barrier("trained")
        if trainer.dense is not None:
            trainer.dense.pull()
        print(f"trainer {rank} test {judge(model, test):.4f}", flush=True)
        if rank == 0:
            save(client, model, vocab, Path("output/ngram.pt"))
        client.barrier("judged")


if __name__ == "__main__":
    main()
