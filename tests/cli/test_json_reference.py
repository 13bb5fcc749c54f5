"""docs/reference/json.md names every key that the verbs print, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

from paddock.backends.registry import Registry
from paddock.backends.types import Handle, JobStatus, NodeStatus, RankStatus
from paddock.cli.job_status import as_json
from schemas import mistakes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "json.md"


def test_every_key_of_a_status_has_its_row(tmp_path: Path) -> None:
    """In the order in which they come; hosts and processes after the job."""
    registry = Registry({"XDG_STATE_HOME": str(tmp_path)})
    run = registry.add("train", Handle("ssh", "lab", "train-3f2a"), "train.py", 1)
    node = NodeStatus("h1", "running", (RankStatus("worker", 0, "running"),))
    row = as_json(run, JobStatus("running", 1.0, nodes=(node,)))
    for found in (row, [row, row]):
        assert mistakes("jobs.json", json.loads(json.dumps(found))) == []
    (host,) = row["nodes"]
    (rank,) = host["ranks"]
    for page in (PAGE, PAGE.with_name("json.zh.md")):
        text = page.read_text("utf-8")
        rows = re.findall(r"^\| `(\w+)` \| (?:text|number|list|boolean|object)", text, re.MULTILINE)
        assert rows == [*row, *host, *rank], page.name
    assert row["ranks_up"] == 1
