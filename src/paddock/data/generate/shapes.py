"""Coloured shapes, 32 x 32, on noise: 5 shapes in 4 colours are 20 classes. No I/O here.

A person tells them all, so the best accuracy is about 1.
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from paddock.data.generate.ceiling import Maker

SIDE = 32
SHAPES = ("circle", "square", "triangle", "cross", "ring")
COLOURS = {"red": (220, 50, 40), "green": (50, 200, 70), "blue": (60, 80, 220),
           "yellow": (225, 205, 50)}  # fmt: skip
RADIUS = (7.0, 12.0)
NOISE, TINT = 30.0, 25.0
PART = 1 << 12

Floats = NDArray[np.float32]


class Images(Maker):
    """Makes images (n, 3, 32, 32) uint8 and labels: the shape's number * 4 + the colour's."""

    # A file of arrays; or, for each image, a byte of label and 3072 of colour, as CIFAR's files.
    forms = ("npz", "raw")

    def __init__(self, form: str, vocab: int | None) -> None:
        super().__init__(form, vocab)
        self.ending = ".npz" if form == "npz" else ".bin"
        # An npz file is written whole.
        self.part_examples = 0 if form == "npz" else PART

    def make(self, rng: np.random.Generator, examples: int) -> bytes:
        """The bytes of so many examples."""
        sizes = [min(PART, examples - at) for at in range(0, examples, PART)]
        drawn = [_drawn(rng, size) for size in sizes]
        image = np.concatenate([images for images, _ in drawn])
        label = np.concatenate([labels for _, labels in drawn])
        if self.ending == ".npz":
            file = io.BytesIO()
            np.savez(file, image=image, label=label)
            return file.getvalue()
        return np.hstack([label[:, None].astype(np.uint8), image.reshape(examples, -1)]).tobytes()

    def facts(self) -> dict[str, object]:
        """The facts known of all examples made, for the manifest."""
        classes = [f"{colour} {shape}" for shape in SHAPES for colour in COLOURS]
        return {"classes": classes, "shape": [3, SIDE, SIDE], "best_accuracy": 1.0}


def _drawn(rng: np.random.Generator, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    label = rng.integers(0, len(SHAPES) * len(COLOURS), count)
    shape, colour = np.divmod(label, len(COLOURS))
    is_shape = _masks(rng, shape)
    paint = np.array(list(COLOURS.values()), np.float32)[colour]
    paint += rng.normal(0, TINT, paint.shape)
    ground = rng.uniform(60, 160, (count, 1, 1, 1)).astype(np.float32)
    image = np.where(is_shape[:, None], paint[:, :, None, None], ground)
    image = image + rng.normal(0, NOISE, (count, 3, SIDE, SIDE)).astype(np.float32)
    return np.clip(image, 0, 255).astype(np.uint8), label


def _masks(rng: np.random.Generator, shape: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n, 32, 32): where each shape is, turned a little, of any place and size."""
    count = len(shape)
    radius = rng.uniform(*RADIUS, (count, 1, 1)).astype(np.float32)
    centre = rng.uniform(RADIUS[1], SIDE - RADIUS[1], (2, count, 1, 1)).astype(np.float32)
    angle = rng.uniform(-0.3, 0.3, (count, 1, 1)).astype(np.float32)
    across = np.arange(SIDE, dtype=np.float32)
    x, y = across[None, None, :] - centre[0], across[None, :, None] - centre[1]
    u = (x * np.cos(angle) + y * np.sin(angle)) / radius
    v = (y * np.cos(angle) - x * np.sin(angle)) / radius
    far, widest = u * u + v * v, np.maximum(np.abs(u), np.abs(v))
    narrow = np.minimum(np.abs(u), np.abs(v)) < 0.3
    kinds = [
        far < 1,
        widest < 0.85,
        (v < 0.8) & (v > 2 * np.abs(u) - 1),
        (widest < 1) & narrow,
        (far < 1) & (far > 0.36),
    ]
    return np.choose(shape[:, None, None], kinds)
