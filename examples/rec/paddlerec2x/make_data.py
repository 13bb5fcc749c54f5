"""Writes data/train and data/test: clicks drawn from hidden weights of the ids.

python examples/rec/paddlerec2x/make_data.py
"""

import sys
from pathlib import Path

import numpy as np

SLOTS, WIDTH, VOCABULARY = 8, 3, 5000


def write(path, examples, seed):
    """A file of so many lines; the same hidden weights whatever the seed."""
    weights = np.random.default_rng(0).normal(0, 1.0, VOCABULARY)
    rng = np.random.default_rng(seed)
    ids = np.minimum(rng.zipf(1.3, (examples, SLOTS)), VOCABULARY // SLOTS - 1)
    ids = ids + np.arange(SLOTS) * (VOCABULARY // SLOTS)
    dense = rng.lognormal(0, 0.5, (examples, WIDTH))
    logits = weights[ids].sum(1) + dense @ [0.8, -0.5, 0.2] - 0.5
    clicks = rng.random(examples) < 1 / (1 + np.exp(-logits))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as out:
        for click, numbers, row in zip(clicks, dense, ids, strict=True):
            pairs = [f"click:{int(click)}", *(f"dense:{number:.5f}" for number in numbers)]
            pairs += [f"{slot + 1}:{key}" for slot, key in enumerate(row)]
            out.write(" ".join(pairs) + "\n")


def main(root, examples=2000):
    """Two files to train on, one to test."""
    for number in (0, 1):
        write(root / "train" / f"part-{number}", examples, seed=number + 1)
    write(root / "test" / "part-0", examples, seed=3)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data")
