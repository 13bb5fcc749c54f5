"""Makes the workspace of the word2vec job from sentences: dictionary, five-word lines, shards.

    paddock data generate words --out sentences --examples 30000
    python prepare.py sentences

A sentence is a line of words. The workspace is the current directory, or --workspace DIR:

    word_dict.json                   word -> id, the most frequent word first, <unk> last
    train.txt  test.txt              five comma separated ids a line: four words and the next one
    train_data_dir/train.txt-00000   the same lines, SPLIT_COUNT files of consecutive ones;
    test_data_dir/test.txt-00000     trainer t reads those whose number modulo trainers is t
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from paddock.data.files import find_files
from paddock.data.split import SplitRequest, split

SPLIT_COUNT = 3
GRAM = 5
TEST_EVERY = 10  # of ten sentences one is kept for the test


def dictionary(sentences: list[list[str]], min_count: int) -> dict[str, int]:
    """Words seen more often than min_count, by descending count and then by name; <unk> last."""
    counts = Counter(word for sentence in sentences for word in sentence)
    counts.update({"<s>": len(sentences), "<e>": len(sentences)})
    kept = [word for word, count in counts.items() if count > min_count and word != "<unk>"]
    kept.sort(key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate([*kept, "<unk>"])}


def grams(sentences: list[list[str]], words: dict[str, int]) -> Iterator[str]:
    """A line for each window of five words, the marks of begin and end among them."""
    unknown = words["<unk>"]
    for sentence in sentences:
        ids = [str(words.get(word, unknown)) for word in ["<s>", *sentence, "<e>"]]
        for at in range(len(ids) - GRAM + 1):
            yield ",".join(ids[at : at + GRAM]) + "\n"


def main() -> None:
    """Read sentences, write the workspace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="+", help="files or directories of sentences")
    parser.add_argument("--workspace", type=Path, default=Path())
    parser.add_argument("--split_count", type=int, default=SPLIT_COUNT)
    parser.add_argument("--min_count", type=int, default=50)
    options = parser.parse_args()
    sentences = []
    for file in find_files(options.text):
        lines = Path(file.path).read_text("utf-8").splitlines()
        sentences += [line.split() for line in lines if line.strip()]
    words = dictionary(sentences, options.min_count)
    workspace = options.workspace
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "word_dict.json").write_text(json.dumps(words), "utf-8")
    test = sentences[::TEST_EVERY]
    train = [s for number, s in enumerate(sentences) if number % TEST_EVERY]
    for name, part in (("train", train), ("test", test)):
        whole = workspace / f"{name}.txt"
        with whole.open("w") as out:
            out.writelines(grams(part, words))
        shards = SplitRequest(
            find_files([whole]), options.split_count, workspace / f"{name}_data_dir"
        )
        split(shards, lambda done, of: None)
    print(f"{len(words)} words, {len(train)} sentences to learn from, {len(test)} to test")


if __name__ == "__main__":
    main()
