"""A training in miniature, for docs/guide/sweeps.md: one value each of --lr and --momentum."""

from __future__ import annotations

import argparse

import paddock

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--momentum", type=float, default=0.0)
given = parser.parse_args()
x = velocity = 0.0
for step in range(40):
    velocity = given.momentum * velocity - given.lr * 2 * (x - 3)
    x += velocity
    paddock.report(step=step, loss=(x - 3) ** 2)
print(f"lr {given.lr}, momentum {given.momentum}: loss {(x - 3) ** 2:.6f}")
