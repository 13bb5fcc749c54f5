"""The page of bundled models is what their files say."""

from __future__ import annotations

from pathlib import Path

from reference_pages.bundled_models import REFERENCE_SCORES, markdown

from paddock.data.generate.write import generated
from paddock.data.manifest import read_manifest
from paddock.rec.config.document import parse
from paddock.rec.config.folder import ResolveContext


def test_every_bundled_model_has_a_part_with_its_metrics_and_source() -> None:
    """Nobody trains a model that says neither what it is nor how it is judged."""
    written = markdown(ResolveContext("/", {}))
    parts = written.split("\n## paddlerec")[1:]
    assert len(parts) == len(ResolveContext("/", {}).bundled_names())
    assert [part.partition("\n")[0] for part in parts if "\nSource: " not in part] == []
    assert [part for part in parts if "Metrics: ." in part] == []


def test_the_best_figure_is_what_the_generated_data_says() -> None:
    """Of the very examples that the config judges by; AUC of the hidden model, entropy, 1."""
    world = ResolveContext("/", {})
    for name, figure in REFERENCE_SCORES.items():
        folder = world.bundled(f"paddlerec.models.{name}")
        assert folder is not None
        document = parse((folder / "config.yaml").read_text("utf-8"), name)
        data = generated(str(document.get(("runner", "test_data_dir"))))
        manifest = read_manifest(Path(data))
        assert manifest is not None
        facts = manifest.facts
        best = {
            "auc": facts.get("bayes_auc"),
            "accuracy": facts.get("best_accuracy"),
            "loss": facts.get("entropy_per_word"),
        }
        if name != "recall.word2vec":  # What is known of pairs is counted (bundled_models.py).
            assert figure.best == best[figure.metric]
