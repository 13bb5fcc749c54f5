"""docs/tutorials/slurm.md, typed on the laptop of three hosts with Slurm, and PyTorch on each."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from pages import ROOT, blocks_of
from terminals import run_block

if TYPE_CHECKING:
    from conformance.slurm import Slurm

PAGE = ROOT / "docs" / "tutorials" / "slurm.md"


@pytest.mark.limit(240)
def test_the_slurm_tutorial_shows_what_is_printed(slurm: Slurm) -> None:
    """Its site, then all its terminals, one after the other, in a copy of the examples."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed: make .venv/.real")
    hosts, laptop = slurm.hosts, slurm.hosts.laptop
    shutil.copytree(ROOT / "examples", laptop.home / "clone" / "examples")
    blocks = blocks_of(PAGE)
    (site,) = (block.body for block in blocks if block.language == "toml")
    real = {"/shared/me/venv": str(hosts.packages), "/shared/me": str(hosts.shared)}
    for shown, instead in real.items():
        site = site.replace(shown, instead)
    (laptop.home / "clone" / "paddock.toml").write_text(site)
    within = laptop.command(["env", "--chdir=/root/clone"], {"TERM": "xterm"})
    bodies = [block.body for block in blocks if block.asked == "Slurm"]
    assert len(bodies) > 4
    for body in bodies:
        assert run_block(body, ROOT, dict(os.environ), within) == []
