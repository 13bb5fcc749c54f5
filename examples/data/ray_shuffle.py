"""Shuffles lines of text with Ray Data, on one machine or many, into shards that Paddock reads.

python examples/data/ray_shuffle.py clicks/part-* --out shuffled --count 4 --seed 1
paddock data check shuffled

All machines must see both folders. With --address auto it runs where `ray start` has been called;
without, it starts Ray here and stops it again.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

# Read when Ray is imported: nothing is reported to anybody, and nothing draws over the last line.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")

import ray
import ray.data
from ray.data.datasource import BlockBasedFileDatasink, FilenameProvider


class ShardNames(FilenameProvider):
    """part-00000 and so on: the numbers by which `paddock data plan --by modulo` deals."""

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        return f"part-{task_index:05d}"


class Lines(BlockBasedFileDatasink):
    """Text, a line for each row."""

    def write_block_to_file(self, block: Any, file: Any) -> None:
        lines = block.to_arrow()["text"].to_pylist()
        file.write("".join(f"{line}\n" for line in lines).encode())


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("files", nargs="+", help="of text")
    words.add_argument("--out", type=Path, required=True, help="a new folder")
    words.add_argument("--count", type=int, required=True, help="how many shards")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--address", help="of a running Ray; auto finds it")
    args = words.parse_args()
    if args.out.exists():
        words.error(f"--out {args.out} is there already: name a new folder")
    if folders := [file for file in args.files if Path(file).is_dir()]:  # manifest.json is no data
        words.error(f"{folders[0]} is a folder: name its files, {folders[0]}/part-*")
    files = [str(Path(file).resolve()) for file in args.files]
    out = args.out.resolve()
    partial = out.with_name(f".{out.name}.partial")
    here = {} if args.address else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    ray.init(args.address or "local", **here)
    try:
        lines = ray.data.read_text(files)
        shuffled = lines.random_shuffle(seed=args.seed).repartition(args.count)
        shuffled.write_datasink(Lines(str(partial), filename_provider=ShardNames()))
    finally:
        ray.shutdown()
    partial.rename(out)  # Half of the shards are never seen.
    print(f"wrote {args.count} shards to {args.out}")


if __name__ == "__main__":
    main()
