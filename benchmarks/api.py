"""Calls from Python: a function in 2 and 8 ranks, beside our command and the peers; and imports.

The peers have an environment of their own, .venv-peer-api, made when it is missing; it finds
PyTorch where the benchmarks do. One that cannot be installed is left out, and the reason is told.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from benchmarks.figure import Figure, interleave
from benchmarks.start import starts
from benchmarks.world import ROOT, World, load_average

ENVIRONMENT = ROOT / ".venv-peer-api"
PEERS = {
    "submitit": ("submitit==1.5.4", "submitit"),
    "accelerate": ("accelerate==1.15.0", "accelerate"),
    "monarch": ("torchmonarch==0.7.0", "monarch.actor"),
    "ray": ("ray[train]==2.60.0", "ray.train"),
}
LIMIT_SECONDS = 120.0
INSTALL_SECONDS = 900.0
CALLS = 4  # of one Python: the first, and those after it
RUNS = 1000
IMPORT = "import time; at = time.perf_counter(); import paddock; print(time.perf_counter() - at)"
LIST_ALL = """
import time
at = time.perf_counter()
import paddock
assert len(paddock.Run.all()) >= 1000
print(time.perf_counter() - at)
"""


def measure(world: World) -> list[Figure]:
    """Calls at 2 and 8 ranks; the import; a list of 1,000 runs."""
    pythons = {"paddock": world.python, **_find_peers()}
    figures = []
    for nprocs, wanted in ((2, 0.10), (8, 0.15)):
        figures += _calls(world, pythons, nprocs, wanted)
    return [*figures, *_imports(world), *_lists(world)]


def _calls(world: World, pythons: dict[str, str], nprocs: int, wanted: float) -> list[Figure]:
    name = f"function in {nprocs} ranks"
    last = Figure(f"{name}: last rank runs", "s")
    results = Figure(f"{name}: results are back", "s", wanted=wanted)
    first = Figure(f"{name}: the first call of a Python", "s")
    against = Figure(f"{name}: against the command", "s", wanted_ratio=("command", 1.2))

    def once(side: str) -> None:
        if side == "command":
            runs, _, ended = starts(world, nprocs, {"paddock": 1})
            last.add(side, runs.result("paddock"))
            results.add(side, ended.result("paddock"))
            against.add(side, ended.result("paddock"))
            return
        rows = _run(world, pythons[side], side, nprocs)
        if rows:
            first.add(side, rows[0][1])
            for at_last, at_results in rows[1:]:
                last.add(side, at_last)
                results.add(side, at_results)
                if side == "paddock":
                    against.add(side, at_results)

    rounds = 2 if world.quick else 5
    plan = {side: rounds if side == "paddock" else max(1, rounds // 2) for side in pythons}
    interleave([last, results, first, against], {**plan, "command": 3 * rounds}, once, load_average)
    if "accelerate" in pythons:
        results.notes["accelerate"] = "(returns none)"
    return [last, results, first, against]


def _run(world: World, python: str, side: str, nprocs: int) -> list[list[float]]:
    """Return the seconds of each call of one Python; none if it failed, which is told."""
    argv = [python, str(world.ranks / "calls.py"), side, str(nprocs), str(CALLS)]
    env = world.env if side == "paddock" else _peer_env(world.env)
    try:
        done = subprocess.run(
            argv, env=env, cwd=world.folder(), capture_output=True, text=True,
            timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
        found: list[list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        print(f"{side}, {nprocs} ranks: {error!r}", file=sys.stderr)
        return []
    return found


def _imports(world: World) -> list[Figure]:
    figure = Figure("import paddock", "ms", wanted=5)
    for _ in range(5 if world.quick else 21):
        figure.add("paddock", 1e3 * float(_python(world, IMPORT)))
    return [figure]


def _lists(world: World) -> list[Figure]:
    """A thousand records of one run each: the command with its start, and Run.all()."""
    state = world.folder()
    env = {**world.env, "XDG_STATE_HOME": str(state), "PADDOCK_KEEP_RUNS": str(2 * RUNS)}
    argv = [world.python, "-m", "paddock", "launch", "--quiet", "--", "/bin/true"]
    subprocess.run(argv, env=env, cwd=world.folder(), check=True)
    (one,) = (state / "paddock" / "runs").iterdir()
    for number in range(RUNS):
        made = one.with_name(f"{one.name.rpartition('-')[0]}-{number:04x}")
        if made != one:
            shutil.copytree(one, made)
            for path in made.glob("*.json*"):
                path.write_text(path.read_text().replace(one.name, made.name))
    command = Figure("1,000 runs: paddock list --all", "s", wanted=0.3)
    call = Figure("1,000 runs: paddock.Run.all()", "s", wanted=0.3)
    for _ in range(3 if world.quick else 9):
        began = time.monotonic()
        argv = [world.python, "-m", "paddock", "list", "--all"]
        shown = subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout
        command.add("paddock", time.monotonic() - began)
        assert shown.count("\n") >= RUNS
        call.add("paddock", float(_python(world, LIST_ALL, env)))
    return [command, call]


def _python(world: World, code: str, env: dict[str, str] | None = None) -> str:
    argv = [world.python, "-c", code]
    return subprocess.run(
        argv, env=env or world.env, check=True, capture_output=True, text=True
    ).stdout


# ------------------------------------------------------------------------------ the peers


def _find_peers() -> dict[str, str]:
    """Return the Python of each peer that can be measured; says why the others cannot."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print(f"== installing the peers into {ENVIRONMENT.name} (once)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        where = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        beside = Path(where) / "zz_framework.pth"  # after their own: PyTorch is 2 GB
        beside.write_text(sysconfig.get_path("purelib") + "\n")
    found = {}
    for name, (requirement, module) in PEERS.items():
        why = _checked(python, module)
        if why:
            pip = [str(python), "-m", "pip", "--quiet", "install", requirement]
            _checked_run(pip, INSTALL_SECONDS)
            why = _checked(python, module)
        if why:
            print(f"{name} is not measured: {why}", file=sys.stderr)
        else:
            found[name] = str(python)
    return found


def _checked(python: Path, module: str) -> str:
    return _checked_run([str(python), "-c", f"import {module}"], LIMIT_SECONDS)


def _checked_run(argv: list[str], limit: float) -> str:
    """Return why a command failed, in its last words; "" if it did not."""
    try:
        done = subprocess.run(
            argv, env=_peer_env(dict(os.environ)), capture_output=True, text=True, timeout=limit,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"still running after {limit:g} s"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1]


def _peer_env(env: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in env.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
