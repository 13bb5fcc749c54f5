"""#PADDOCK lines at the head of a script."""

from __future__ import annotations

import pytest

from paddock.backends.flags import read_directives
from paddock.errors import UsageError

SCRIPT = """\
#!/usr/bin/env python
# -*- coding: utf-8 -*-
#PADDOCK --nproc_per_node 2  # one a device
#PADDOCK --env "NAME=a b" --partition=gpu

#SBATCH --time=5
import os
#PADDOCK --nnodes 7
"""


def test_directives_are_read_up_to_the_first_line_that_does_something() -> None:
    found = read_directives(SCRIPT)
    assert [d.line for d in found] == [3, 4]
    words = [word for directive in found for word in directive.words]
    assert words == ["--nproc_per_node", "2", "--env", "NAME=a b", "--partition=gpu"]


def test_a_script_without_directives_has_none() -> None:
    assert read_directives("") == ()
    assert read_directives("#PADDOCKED --x\n# PADDOCK --y\nimport os\n") == ()


def test_every_line_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        read_directives("#PADDOCK --env 'x\n#PADDOCK train.py\n")
    assert [p.message.split(":")[0] for p in caught.value.problems] == [
        "line 1 of the script",
        "line 2 of the script",
    ]
