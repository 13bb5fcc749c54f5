"""Whatever the words are, the answer is a job or a UsageError with messages."""

from __future__ import annotations

import random

import pytest
from reference_pages.launching import SPECIAL

from paddock.errors import UsageError
from paddock.jobfile.environment import FALLBACKS, MAPPING
from paddock.jobfile.flags import BY_NAME
from paddock.jobfile.parse import parse

WORLDS = 3000
TEXTS = (
    "", "0", "1", "2", "-1", "x", "1:2", ":", "2:", "a", "a:1", "a:1,b:2", "a:1;b:2", ";", ",",
    "1;2", "::1", "[::1]:5", "[]:5", "http://", "etcd://", "etcd://,", "etcd://a,b:2", "=", "K=V",
    "é", "\0", "cpu", "gpu", "auto", "all", "none", "ps", "ps-heter", "rpc", "train.py", "./x", "-",
    "--", "99999", "9" * 40, "1e9", "nan", "inf", "1m", "m", ".", "..", "oom,1", "a b",
    "127.0.0.1,b", "a,b", "1.5s", "²",
)  # fmt: skip


def some_line(rng: random.Random) -> list[str]:
    """A few flags with values that fit or do not."""
    words: list[str] = []
    for _ in range(rng.randrange(6)):
        name = rng.choice([*BY_NAME, "nope"])
        text = rng.choice(TEXTS)
        words += [f"--{name}={text}"] if rng.random() < 0.5 else [f"--{name}", text]
    return [*words, rng.choice(("train.py", "-m", "--", "prog"))]


@pytest.mark.parametrize("part", range(4))
def test_no_words_lead_to_a_traceback(part: int) -> None:
    """Seeded: a failing seed becomes a row of test_bad_input."""
    variables = [v for v, _ in (*MAPPING, *FALLBACKS, *SPECIAL)]
    njobs = 0
    for seed in range(part * WORLDS // 4, (part + 1) * WORLDS // 4):
        rng = random.Random(seed)
        words = some_line(rng)
        env = {rng.choice(variables): rng.choice(TEXTS) for _ in range(rng.randrange(4))}
        try:
            parsed = parse(words, env, python="py")
        except UsageError as error:
            assert all(p.message for p in error.problems), (seed, words, env)
            assert "\n" not in error.message, (seed, words, env)
        else:
            njobs += 1
            assert parsed.is_help or parsed.file or parsed.job.command.program, (seed, words)
            assert 1 <= parsed.job.nnodes_min <= parsed.job.nnodes_max
    assert njobs > 20
