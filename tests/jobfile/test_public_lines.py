"""Lines as people type them: each means what its launcher makes of it, or is refused with a reason.

The tables are lines/torch.txt (torch's own tests) and lines/public.txt (public repositories).
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobfile.reading import PYTHON
from paddock.core.endpoint import join_endpoint
from paddock.core.job import Entrypoint, Job
from paddock.errors import UsageError
from paddock.jobfile.parse import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES = Path(__file__).parent / "lines"


def entries() -> Iterator[tuple[str, str, str]]:
    """(where it is from, the line, what it must mean)."""
    for path in sorted(LINES.glob("*.txt")):
        for block in path.read_text("utf-8").split("\n\n"):
            lines = [line for line in block.splitlines() if not line.startswith("#")]
            if lines:
                where, line, meaning = (text.strip() for text in lines)
                yield where, line, meaning


ALL = list(entries())


def split(line: str) -> tuple[dict[str, str], list[str]]:
    """The variables before a line, and its words, as a shell reads them."""
    words = shlex.split(line)
    count = next((at for at, w in enumerate(words) if "=" not in w or w[0] == "-"), len(words))
    env = dict(word.split("=", 1) for word in words[:count])
    return env, words[count:]


def meaning_of(job: Job) -> dict[str, str]:
    """What the table may name of a job, as text."""
    meeting = job.rendezvous
    roles = {role.name: role for role in job.roles}
    worker, server, heter = roles["worker"], roles.get("ps"), roles.get("heter")
    low, high = job.nnodes_min, job.nnodes_max
    cores = len(os.sched_getaffinity(0))
    return {
        "mode": job.mode,
        "nnodes": str(low) if low == high else f"{low}:{high}",
        "meet": join_endpoint(meeting.host, meeting.port) if meeting.kind == "tcp" else "",
        "ips": ",".join(meeting.ips),
        "host": meeting.own_host,
        "rank": "" if meeting.node_rank is None else str(meeting.node_rank),
        "join": f"{meeting.join_timeout_seconds:g}",
        "more": f"{job.elastic.timeout_seconds:g}",
        "level": str(job.elastic.level),
        "restarts": str(job.restart.max_restarts),
        "id": job.job_id,
        "nproc": str(worker.count or ""),
        "on_cpu": "cores" if worker.on_cpu == cores else str(worker.on_cpu),
        "workers": ",".join(worker.endpoints),
        "servers": ",".join(server.endpoints) or str(server.count) if server else "",
        "heter": f"{heter.count}:{heter.device}" if heter else "",
        "devices": ",".join(job.devices or ()),
        "kind": job.device_kind,
        "ports": str(job.start_port or ""),
        "log_dir": job.logs.directory,
        "log_level": job.logs.level,
        "tail": ",".join(job.logs.tail),
        "streams": ",".join(f"{rank}:{shown}" for rank, shown in job.logs.streams),
        "prefix": job.logs.line_prefix,
        "role": job.role_name,
        "virtual": str(job.virtual_local_rank),
        "runs": " ".join(word for word in job.command.argv() if word != PYTHON),
    }


@pytest.mark.parametrize(("where", "line", "meaning"), ALL, ids=[where for where, _, _ in ALL])
def test_a_line_of_another_project_means_what_it_means_there(
    where: str, line: str, meaning: str
) -> None:
    """Who has such a line writes paddock launch before it, and changes nothing else."""
    env, words = split(line)
    if meaning.startswith("refused: "):
        with pytest.raises(UsageError) as caught:
            parse(words, env, python=PYTHON)
        reasons = [problem.message for problem in caught.value.problems]
        assert any(reason.startswith(meaning.removeprefix("refused: ")) for reason in reasons)
        return
    usual = meaning_of(Job(Entrypoint("program", "")))
    if os.cpu_count() == 1:
        usual["on_cpu"] = "cores"
    expected = dict(word.split("=", 1) for word in shlex.split(meaning))
    assert expected.keys() <= usual.keys(), where
    found = meaning_of(parse(words, env, python=PYTHON).job)
    assert {k: v for k, v in found.items() if v != usual[k]} == expected, where


def test_the_tables_hold_what_they_promise() -> None:
    """Torch's own lines and those of public repositories; none is there twice."""
    assert len({where for where, _, _ in ALL}) == len(ALL)
    by_table = [len(path.read_text("utf-8").split("\n\n")) - 1 for path in LINES.glob("*.txt")]
    assert min(by_table) >= 28
    assert max(by_table) >= 36
