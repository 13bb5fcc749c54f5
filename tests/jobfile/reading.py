"""Short ways to parse in tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paddock.errors import UsageError
from paddock.jobfile.parse import ParsedLaunch, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.core.job import Job
    from paddock.errors import Problem

PYTHON = "/usr/bin/python3"


def parsed(line: str, env: Mapping[str, str] | None = None) -> ParsedLaunch:
    """What a command line, split at blanks, asks for."""
    return parse(line.split(), env or {}, python=PYTHON)


def job(line: str, env: Mapping[str, str] | None = None) -> Job:
    """Its job."""
    return parsed(line, env).job


def problems(line: str, env: Mapping[str, str] | None = None) -> tuple[Problem, ...]:
    """All that is wrong with it."""
    with pytest.raises(UsageError) as caught:
        parsed(line, env)
    assert caught.value.exit_code == 2
    return caught.value.problems
