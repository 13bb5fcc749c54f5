"""What each bundled model reaches on its generated data, as `paddock rec -m NAME` prints it.

Measured with torch, one worker, on one core of a cloud machine (AMD EPYC); tests do not compare
them, as they take minutes. `best` is known of the data itself, and is compared.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReferenceScore:
    """A number of the last line (`test, ...`), and the best there is on the same examples.

    seconds: of a core. why: what people should know of both.
    """

    metric: str
    found: float
    best: float
    seconds: int
    why: str = ""


CLICKS = 0.81336
REFERENCE_SCORES = {
    "rank.dcn_v2": ReferenceScore("auc", 0.8085, CLICKS, 62),
    "rank.deepfm": ReferenceScore("auc", 0.8084, CLICKS, 38),
    "rank.din": ReferenceScore("auc", 0.8449, 0.85033, 40),
    "rank.dnn": ReferenceScore("auc", 0.8065, CLICKS, 45),
    "rank.fm": ReferenceScore("auc", 0.8067, CLICKS, 12),
    "rank.logistic_regression": ReferenceScore(
        "auc", 0.8045, CLICKS, 8,
        "A weight for each id cannot have crosses of two slots: without them the best is 0.8052.",
    ),
    "rank.wide_deep": ReferenceScore("auc", 0.8069, CLICKS, 31),
    "recall.ngram": ReferenceScore(
        "loss", 3.0579, 2.85887, 61,
        "The best loss is the entropy of a word; that of a guess is log 2000 = 7.60. Accuracy is\n"
        "0.2473, of 0.2595.",
    ),
    "recall.word2vec": ReferenceScore(
        "loss", 2.5318, 2.428, 29,
        "The best loss is that of each pair's true frequency, counted in 600,000 sentences\n"
        "(AUC 0.705). It begins at 4.16; who knows how frequent words are, and nothing of\n"
        "neighbours, has 2.68.",
    ),
    "vision.resnet": ReferenceScore(
        "accuracy", 0.853, 1.0, 37, "A person tells all of the classes apart."
    ),
}  # fmt: skip
