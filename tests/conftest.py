"""For every suite: a limit on each test, and an environment that no outer job has touched.

In a parallel run (pytest -n) each worker has a network of its own, and a test that is marked
`alone` waits until nothing runs beside it; such tests come last. A failure says how long the
machine stood still meanwhile.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from beside import Turns, leave_network
from standstill import Standstills

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Hypothesis repeats itself, and no clock judges: a loaded machine is not a bug.
settings.register_profile(
    "paddock",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("paddock")

LIMIT_SECONDS = 30.0
LIMIT_SECONDS_REAL = 120.0
HERE = Path(__file__).resolve().parent
REAL_FOLDERS = (HERE / "real", HERE / "conformance")  # no test there need say so
WHOLLY_REAL = re.compile(r"^pytestmark = .*\bmark\.real\b", re.MULTILINE)
SLOWDOWN = 2.0  # of a test that shares a processor with another one
TURNS = pytest.StashKey[Turns]()
# They assert, and their names do not say so.
pytest.register_assert_rewrite("conformance.properties", "conformance.labs", "cluster.labs")

# Set by launchers for their ranks. A test started inside such a job must not see them.
OUTER_JOB = (
    "PADDLE_", "PADDOCK_JOB_ID", "PADDOCK_ATTEMPT", "PADDOCK_RUN_DIR", "PADDOCK_TOKEN",
    "TRAINING_ROLE", "TRAINER_", "DISTRIBUTED_TRAINER_", "FLAGS_",
    "OMPI_", "PMI_", "PMIX_", "SLURM_", "JAX_", "TORCHELASTIC_", "TORCHRUN_", "MASTER_",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_", "ROLE_", "POD_",
    "CUDA_VISIBLE_DEVICES", "XPU_VISIBLE_DEVICES", "XPULINK_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "PORT_RANGE", "OMP_NUM_THREADS",
    "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY",
)  # fmt: skip


class TookTooLongError(BaseException):
    """Not an Exception, so that no `except Exception` in the code under test can hide it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """pytest --record: write the golden files and transcripts anew, to be reviewed as a diff."""
    parser.addoption("--record", action="store_true", help="rewrite golden files, then review them")


def pytest_configure(config: pytest.Config) -> None:
    """Under nohup, or behind `&` in a script, some signals are ignored, by what we start as well.

    A handler is not handed on, so that there every signal has its default action again.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)
    state = tempfile.TemporaryDirectory(prefix="paddock-tests-state-")  # launches are recorded
    config.add_cleanup(state.cleanup)
    os.environ["XDG_STATE_HOME"] = state.name
    worker: dict[str, str] | None = getattr(config, "workerinput", None)  # of pytest-xdist
    if worker is not None:
        leave_network()
        name = f"paddock-tests-{worker['testrunuid']}.turns"
        config.stash[TURNS] = Turns(Path(tempfile.gettempdir()) / name)
    elif sys.platform == "linux":
        config.pluginmanager.register(Standstills(config))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What -m leaves out whole is not imported: thousands of tests, or all frameworks."""
    chosen = config.option.markexpr.partition(" and ")[0]
    if not collection_path.match("test_*.py") or chosen not in ("real", "not real"):
        return None
    of_folder = any(folder in collection_path.parents for folder in REAL_FOLDERS)
    text = "" if of_folder else collection_path.read_text("utf-8")
    if chosen == "real":
        left_out = not of_folder and "mark.real" not in text
    else:
        left_out = of_folder or WHOLLY_REAL.search(text) is not None
    return left_out or None  # None: as others say


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last worker to end removes what they shared; to those that still have it, it stays."""
    if turns := config.stash.get(TURNS, None):
        turns.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the machine alone comes last, when others have no more to do beside it.

    Those of watch/ come first: they wait for minutes, and one worker does so while others compute.
    """
    items.sort(
        key=lambda item: (
            item.get_closest_marker("alone") is not None,
            HERE / "watch" not in item.path.parents,
        )
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Wait for a turn: outside of the test's own limit."""
    turns = item.config.stash.get(TURNS, None)
    alone = item.get_closest_marker("alone") is not None
    with turns.turn(alone=alone) if turns is not None else nullcontext():
        return (yield)


@pytest.fixture
def recording(request: pytest.FixtureRequest) -> bool:
    """Whether this run rewrites golden files and transcripts."""
    return bool(request.config.getoption("--record"))


@pytest.fixture
def same_as_golden(recording: bool) -> Callable[[Path, str], None]:
    """Compare text with a golden file, or write the file when recording."""

    def compare(path: Path, text: str) -> None:
        if recording:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        assert path.exists(), f"{path} is missing: pytest --record"
        assert text == path.read_text("utf-8"), f"{path} differs; if that is right: pytest --record"

    return compare


@pytest.fixture(autouse=True)
def no_outer_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove what a launcher around pytest would have set."""
    for name in [n for n in os.environ if n.startswith(OUTER_JOB)]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def no_connection_stays() -> Iterator[None]:
    """Close what this process has connected: the next test may have another home."""
    yield
    if pool := sys.modules.get("paddock.backends.ssh.pool"):
        for channel in pool.ConnectionPool._open.values():
            channel.close()
        pool.ConnectionPool._open.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """End a test that takes longer than its limit, with a traceback of where it was."""
    if not hasattr(signal, "SIGALRM"):  # Windows
        return (yield)
    marker = item.get_closest_marker("limit")
    if marker is not None:
        seconds = float(marker.args[0])
    else:
        seconds = LIMIT_SECONDS_REAL if item.get_closest_marker("real") else LIMIT_SECONDS
    if TURNS in item.config.stash:
        seconds *= SLOWDOWN

    def on_alarm(_signal: int, _frame: object) -> None:
        raise TookTooLongError(f"still running after {seconds:g} s (see the limit marker)")

    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
