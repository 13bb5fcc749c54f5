"""What --dry-run shows of a file of each generation, whole: settings, sources and the command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.rec.config.args import read_args
from paddock.rec.config.dry_run import text
from paddock.rec.config.folder import find_config
from paddock.rec.config.resolve import resolve
from paddock.rec.engines import command
from rec.config.conftest import DYGRAPH, Bench

GOLDEN = Path(__file__).parent / "golden"
# The page of PaddleRec's distributed training, and 1.8.5's flat layout.
BACKEND = """
engine:
  backend: "k8s"
  job_name: "k8s-ctr-dnn"

  submit:
    server_num: 2
    trainer_num: 2
    docker_image: "hub.example/ctr/paddlerec:alpha"
    memory: "4Gi"
    storage: "10Gi"
    log_level: 0
"""
FLAT = """
backend: kubernetes
form: paddlejob
options: {namespace: ml}
submit:
  job_name: PaddleRec_CTR
  docker_image: "hub.example/rec:2"
  k8s_trainers: 4
  k8s_ps_num: 3
  k8s_cpu_cores: 8
"""


@pytest.mark.parametrize("case", sorted(p.stem for p in GOLDEN.glob("*.yaml")))
def test_a_dry_run_shows_every_setting_and_its_source(
    case: str, bench: Bench, same_as_golden: Callable[[Path, str], None]
) -> None:
    """Nobody has to guess where a number comes from."""
    source = (GOLDEN / f"{case}.yaml").read_text("utf-8")
    words = source.splitlines()[0].removeprefix("# ").split()
    bench.put({"backend.yaml": BACKEND, "backend_flat.yaml": FLAT, "case/dygraph_model.py": DYGRAPH,
               "case/net.py": "", "case/my_reader.py": ""})  # fmt: skip
    (bench.root / "case/config.yaml").write_text(source)
    request = read_args(words)
    world = replace(bench.world, cwd=str(bench.root / "case"))
    recipe = resolve(request, world)
    chosen = command(recipe, request, find_config(request.model, world), "python")
    shown = text(recipe, shlex.join(chosen.words))
    assert "hush" not in shown
    # Columns are as wide as the directory's name is long.
    shown = re.sub("  +", "  ", shown.replace(str(bench.root), "ROOT"))
    same_as_golden(GOLDEN / f"{case}.txt", shown)
