"""What the wide & deep examples print, alike for every framework."""

import argparse
import hashlib
import time
from collections.abc import Callable
from typing import Any

import criteo_like
import numpy as np

EVERY = 20


class Report:
    """Prints first, some and last losses; at the end speed, AUC and a digest of all parameters."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.begun = time.perf_counter()
        self.examples = 0
        self.batches = 0
        self.last: Callable[[], float] | None = None  # The last batch's loss, if not printed yet.

    def batch(self, loss: Callable[[], float], examples: int) -> None:
        """Counts a batch; asks for its loss only when it is printed."""
        if self.batches == 0:
            self.begun = time.perf_counter()  # The first one compiles; its examples do not count.
        else:
            self.examples += examples
        self.batches += 1
        self.last = loss
        if self.batches == 1 or self.batches % EVERY == 0:
            self.print_last()

    def print_last(self) -> None:
        """Prints the loss of the last batch, once."""
        if self.last is not None:
            print(f"trainer {self.options.trainer} batch {self.batches} loss {self.last():.4f}")
            self.last = None

    def end(self, client: Any, score: Callable[[], np.ndarray], label: np.ndarray) -> None:
        """Waits for all trainers; the first one then judges what they have learnt together.

        score: computes the predictions for the test set, of which `label` is the truth.
        """
        seconds = time.perf_counter() - self.begun
        self.print_last()
        me = f"trainer {self.options.trainer}"
        print(f"{me} examples/s {self.examples / max(seconds, 1e-9):.0f}", flush=True)
        client.barrier("trained")
        if self.options.trainer == 0:
            print(f"{me} AUC {criteo_like.auc(label, score()):.4f}")
            print(f"{me} parameters {digest(client, self.options)}", flush=True)
        client.barrier("judged")


def digest(client: Any, options: argparse.Namespace) -> str:
    """SHA-256 of every parameter, first 16 digits: two runs with the same one are equal bits."""
    ids = criteo_like.every_id(options)
    found = hashlib.sha256(client.pull_dense("dense").tobytes())
    for table in ("wide", "deep"):
        found.update(client.pull(table, ids).tobytes())
    return found.hexdigest()[:16]
