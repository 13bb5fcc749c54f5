"""What the manifests beside data say of it: how many examples, and the best that a model can do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from paddock.data.chunks import GENERATED
from paddock.data.generate.on_demand import generated
from paddock.data.manifest import Manifest, read_manifest
from paddock.rec.settings import Reading


def best(reading: Reading, numbers: Mapping[str, float]) -> str:
    """What is known of the best that a model can do on generated data."""
    for manifest in _manifests(reading):
        facts = manifest.facts if manifest is not None else {}
        for name, fact in (("auc", "bayes_auc"), ("accuracy", "best_accuracy")):
            if name in numbers and isinstance(found := facts.get(fact), float):
                return f" (the best possible {name} on these examples: {found:.4f})"
    return ""


def examples(reading: Reading) -> int:
    """Of all workers in an epoch; 0 where not all of the data has a manifest."""
    found = list(_manifests(reading))
    if None in found:
        return 0
    return sum(shard.count for manifest in found if manifest for shard in manifest.shards)


def _manifests(reading: Reading) -> Iterator[Manifest | None]:
    for path in reading.paths:
        directory = Path(generated(path) if path.startswith(GENERATED) else path)
        yield read_manifest(directory) if directory.is_dir() else None
