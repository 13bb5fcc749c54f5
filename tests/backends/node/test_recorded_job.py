"""The logs of a real job, as its launcher has recorded them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.jobs import World
from paddock.backends.node.logs import rows
from paddock.backends.types import LogQuery

if TYPE_CHECKING:
    from pathlib import Path


def test_what_two_ranks_said_in_turns_is_told_in_turns(tmp_path: Path) -> None:
    """Over a restart, and across their files."""
    world = World(tmp_path)
    script = world.script(
        "for turn in range(6):\n"
        "    done = f'{ATTEMPT}.{turn}.done'\n"
        "    if turn % 2 == RANK:\n"
        "        print(f'{ATTEMPT}: {turn}', flush=True)\n"
        "        time.sleep(0.05)\n"
        "        open(done, 'w').close()\n"
        "    while not os.path.exists(done):\n"
        "        time.sleep(0.002)\n"
        "sys.exit(3 * (RANK == 1 and ATTEMPT == 0))\n"
    )
    try:
        words = ("--nproc_per_node", 2, "--max_restart", 1, "--record", tmp_path / "record")
        assert world.run(*words, script).code == 0
    finally:
        world.close()
    found = list(rows(str(tmp_path), LogQuery(), host="h"))
    said = [(label, line) for _, label, data in found for line in data.decode().split("\n")]
    turns = [(label, line) for label, line in said if line and not line.startswith("-----")]
    assert turns == [
        (f"h rank {turn % 2}", f"{attempt}: {turn}") for attempt in range(2) for turn in range(6)
    ]
    assert sum("attempt 1, rank" in line for _, line in said) == 2
