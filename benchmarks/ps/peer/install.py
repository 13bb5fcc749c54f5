"""Makes the peer's virtual environment when it is missing, or says why there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("3.11", "3.10", "3.12", "3.9", "3.8")  # PaddlePaddle 2.6.2 has wheels for these
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
CHECK = "import google.protobuf, numpy, paddle; assert paddle.__version__ == '2.6.2'"
INSTALL_SECONDS = 1200
CHECK_SECONDS = 120
# Names a Python that has the peer already; the folder of the environment is not looked at then.
OVERRIDE = "PADDOCK_BENCH_PEER"


def find_or_install(folder: Path) -> tuple[str | None, str]:
    """(the peer's Python, how it was found) or (None, why there is none).

    folder: the virtual environment, made when missing. A broken one is left for its owner to see.
    """
    named = os.environ.get(OVERRIDE)
    if named:
        return (named, f"{OVERRIDE}") if _works(named) else (None, f"{OVERRIDE}={named}: no peer")
    python = folder / "bin" / "python"
    if python.exists():
        if _works(str(python)):
            return str(python), f"{folder.name}"
        return None, f"{folder.name} is there but PaddlePaddle 2.6.2 does not import: remove it"
    if sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"):
        return None, "PaddlePaddle 2.6.2 has no wheel for this machine"
    base = _interpreter()
    if base is None:
        return None, f"PaddlePaddle 2.6.2 needs one of Python {', '.join(sorted(VERSIONS))}"
    print(f"== installing PaddlePaddle 2.6.2 into {folder.name} (once)", file=sys.stderr)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    for argv in ([base, "-m", "venv", str(folder)], [*pip, "-r", str(REQUIREMENTS)]):
        try:
            done = subprocess.run(
                argv, env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True,
                text=True, timeout=INSTALL_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            done = subprocess.CompletedProcess(argv, 1, "", str(error))
        if done.returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)  # a half one would be taken for whole
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            return None, f"could not install it: {' '.join(last)}"
    return (str(python), folder.name) if _works(str(python)) else (None, "it does not import")


def clean_environment() -> dict[str, str]:
    """This environment without what is meant for our own interpreter."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if k not in dropped}


def _interpreter() -> str | None:
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in (mine, *VERSIONS) if mine in VERSIONS else VERSIONS:
        found = sys.executable if version == mine else shutil.which(f"python{version}")
        if found and _runs(found, "import ensurepip, venv", 20):
            return found
    return None


def _works(python: str) -> bool:
    return _runs(python, CHECK, CHECK_SECONDS)


def _runs(python: str, code: str, limit_seconds: float) -> bool:
    try:
        done = subprocess.run(
            [python, "-c", code], env=clean_environment(), stdin=subprocess.DEVNULL,
            capture_output=True, timeout=limit_seconds, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
