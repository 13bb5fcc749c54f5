"""Generated data is the same every time, has the form its readers know, and a known best score."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

from paddock.data.files import find_files
from paddock.data.generate.ceiling import Ceiling
from paddock.data.generate.criteo import DIFFS, MINS, CriteoExamples
from paddock.data.generate.interests import LONGEST, MATCH_WEIGHT, Interests
from paddock.data.generate.words import CLASSES, Sentences
from paddock.data.generate.write import KINDS, GenerateRequest, generate
from paddock.data.manifest import read_manifest
from paddock.errors import PaddockError, UsageError

EVERY_FORM = [(kind, form) for kind, made in KINDS.items() for form in made.forms]


def quiet(done: int, total: int) -> None:
    """Tells nobody."""


def texts(directory: Path) -> list[bytes]:
    """The bytes of its files of data."""
    return [Path(file.path).read_bytes() for file in find_files([directory])]


@pytest.mark.parametrize(("kind", "form"), EVERY_FORM)
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, kind: str, form: str) -> None:
    """Figures of two machines are of the same examples; another seed gives others."""
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generate(GenerateRequest(kind, tmp_path / name, 50, files=3, seed=seed, form=form), quiet)
    assert texts(tmp_path / "a") == texts(tmp_path / "b")
    assert texts(tmp_path / "a") != texts(tmp_path / "c")
    manifest = read_manifest(tmp_path / "a")
    assert manifest is not None
    assert [shard.count for shard in manifest.shards] == [17, 17, 16]
    assert [shard.bytes for shard in manifest.shards] == [len(t) for t in texts(tmp_path / "a")]
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["count"] == 50


def test_slots_and_tsv_hold_the_same_clicks() -> None:
    """Raw numbers become those of the slots by PaddleRec's table; codes name the same categories.

    Legacy reader: an empty number is 0, else (x - min) / diff.
    """
    slots, tsv = (
        CriteoExamples(form, 50).make(np.random.default_rng(3), 400).decode().splitlines()
        for form in ("slots", "tsv")
    )
    names: dict[tuple[int, str], set[str]] = {}
    for slot_line, tsv_line in zip(slots, tsv, strict=True):
        words, fields = slot_line.split(" "), tsv_line.split("\t")
        assert words[0] == f"click:{fields[0]}"
        numbers = [
            (float(x) - low) / diff if x else 0.0
            for x, low, diff in zip(fields[1:14], MINS, DIFFS, strict=True)
        ]
        given = [float(word.removeprefix("dense_feature:")) for word in words[1:14]]
        assert numbers == pytest.approx(given, abs=1e-5)
        for slot, (word, code) in enumerate(zip(words[14:], fields[14:], strict=True), 1):
            assert word.startswith(f"{slot}:") and len(code) == 8
            names.setdefault((slot, code), set()).add(word)
    assert all(len(found) == 1 for found in names.values())
    assert "\t\t" in "\n".join(tsv)


def test_no_id_lies_beyond_the_rows_of_paddlerec() -> None:
    """The models there have 1000001 rows; the largest vocabulary stays below."""
    text = CriteoExamples("slots", 38461).make(np.random.default_rng(0), 300).decode()
    ids = [int(word.rpartition(":")[2]) for line in text.splitlines() for word in line.split()[14:]]
    assert min(ids) > 0
    assert max(ids) <= 1_000_000
    with pytest.raises(UsageError, match="--vocab is 38462"):
        CriteoExamples("slots", 38462)


def test_the_ceiling_is_the_auc_of_the_hidden_odds() -> None:
    """Counted in buckets, it equals the share of pairs in order."""
    rng = np.random.default_rng(5)
    odds = rng.normal(size=3000)
    label = (rng.random(3000) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    ceiling = Ceiling()
    for part in (slice(0, 1000), slice(1000, 3000)):
        ceiling.add(odds[part], label[part])
    clicks, others = odds[label == 1], odds[label == 0]
    pairs = (clicks[:, None] > others[None, :]).mean()
    assert ceiling.facts()["bayes_auc"] == pytest.approx(pairs, abs=2e-4)


def test_examples_of_one_label_have_no_auc() -> None:
    """Nothing to put in order is no score of 0.5, and no division by zero."""
    ceiling = Ceiling()
    ceiling.add(np.zeros(3), np.zeros(3, np.int64))
    assert ceiling.facts()["bayes_auc"] is None


def test_the_entropy_is_that_of_the_words_drawn() -> None:
    """The mean surprise of many words under the true shares is the entropy in the manifest."""
    language = Sentences("text", 200)
    ids = language._sentences(np.random.default_rng(1), 3000, 20)
    classes = language._class_of[ids]
    shares = np.full((CLASSES * CLASSES, 200), 0.02 / 200)
    np.put_along_axis(shares, language._likely, language._shares + 0.02 / 200, axis=1)
    context = classes[:, :-2] * CLASSES + classes[:, 1:-1]
    surprise = -np.log(shares[context, ids[:, 2:]]).mean()
    assert surprise == pytest.approx(language.entropy(), abs=0.02)
    assert np.allclose(shares.sum(1), 1)
    is_likeliest = shares[context].argmax(-1) == ids[:, 2:]
    assert is_likeliest.mean() == pytest.approx(language.facts()["best_accuracy"], abs=0.01)


def test_five_words_are_written_as_prepare_py_does(tmp_path: Path) -> None:
    """The word2vec demo reads lines of five ids with commas."""
    generate(GenerateRequest("words", tmp_path / "w", 20, form="ngram", vocab=100), quiet)
    (text,) = texts(tmp_path / "w")
    rows = [[int(word) for word in line.split(b",")] for line in text.splitlines()]
    assert len(rows) == 20
    assert {len(row) for row in rows} == {5}
    assert max(max(row) for row in rows) < 100


def test_who_had_an_item_of_the_offered_category_clicks_more() -> None:
    """Item and category are told in pairs; the odds differ by twice the weight of a match."""
    maker = Interests("slots", 40)
    text = maker.make(np.random.default_rng(3), 4000).decode()
    counts = np.zeros((2, 2))
    for line in text.splitlines():
        click, *words = line.split(" ")
        names, values = zip(*(word.split(":") for word in words), strict=True)
        items, found = list(map(int, values[::2])), list(map(int, values[1::2]))
        assert names[-2:] == ("target_item", "target_cat") and 1 <= len(names) // 2 - 1 <= LONGEST
        assert [1 + (item - 1) % 20 for item in items] == found
        counts[int(found[-1] in found[:-1]), int(click[-1])] += 1
    odds = np.log(counts[:, 1] / counts[:, 0])
    assert odds[1] - odds[0] == pytest.approx(2 * MATCH_WEIGHT, abs=0.4)
    assert 0.8 < float(str(maker.facts()["bayes_auc"])) < 0.9


def test_shapes_are_labelled_by_colour_and_shape(tmp_path: Path) -> None:
    """The middle of a drawn circle has the colour its label says; raw files hold the same."""
    for form in ("npz", "raw"):
        generate(GenerateRequest("shapes", tmp_path / form, 300, form=form), quiet)
    arrays = np.load(io.BytesIO(texts(tmp_path / "npz")[0]))
    image, label = arrays["image"], arrays["label"]
    assert image.shape == (300, 3, 32, 32) and image.dtype == np.uint8
    colours = image[label == 0].astype(int).mean(axis=(0, 2, 3))  # red circles
    assert colours.argmax() == 0
    raw = np.frombuffer(texts(tmp_path / "raw")[0], np.uint8).reshape(300, 1 + 3072)
    assert (raw[:, 0] == label).all() and (raw[:, 1:].reshape(image.shape) == image).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "npz"}, "--format is 'npz'"),
        ({"examples": 2, "files": 3}, "fewer than the 3 files"),
        ({"files": 0}, "--files is 0"),
        ({"seed": -1}, "--seed is -1"),
        ({"vocab": 1}, "--vocab is 1"),
        ({"kind": "interests", "vocab": 19}, "--vocab is 19"),
    ],
)
def test_what_cannot_be_made_is_refused(
    tmp_path: Path, changes: dict[str, int], message: str
) -> None:
    """Nothing is written before the input is known to be good."""
    wanted = {"kind": "criteo", "directory": tmp_path / "d", "examples": 10, **changes}
    with pytest.raises(UsageError, match=message):
        generate(GenerateRequest(**wanted), quiet)  # type: ignore[arg-type]
    assert not (tmp_path / "d").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    """What stands in the directory stays as it is."""
    generate(GenerateRequest("words", tmp_path / "w", 5), quiet)
    before = texts(tmp_path / "w")
    with pytest.raises(UsageError, match="already there"):
        generate(GenerateRequest("words", tmp_path / "w", 6), quiet)
    assert texts(tmp_path / "w") == before


def test_a_directory_that_is_there_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--out .` in a new directory: it stays the directory that the shell stands in."""
    monkeypatch.chdir(tmp_path)
    generate(GenerateRequest("words", Path("."), 5), quiet)
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["manifest.json", "part-00000.txt"]


def test_a_failure_midway_leaves_nothing(tmp_path: Path) -> None:
    """Disk full, a signal: no file stands under its final name."""

    def full(done: int, total: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(PaddockError, match="No space left") as caught:
        generate(GenerateRequest("words", tmp_path / "w", 5), full)
    assert caught.value.exit_code != 2
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """kill -9 leaves a hidden directory; the next run removes it, but not that of a running one."""
    dead, alive = tmp_path / ".w-paddock-1.tmp", tmp_path / ".w-paddock-2.tmp"
    dead.mkdir()
    alive.mkdir()
    import fcntl

    held = os.open(alive, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    generate(GenerateRequest("words", tmp_path / "w", 5), quiet)
    os.close(held)
    assert sorted(path.name for path in tmp_path.iterdir()) == [alive.name, "w"]
