"""The launcher as an archive: made once, without the parameter server and with it."""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from paddock import __version__
from paddock.backends.files import program
from paddock.backends.files.program import build, unpack_into
from paddock.backends.kubernetes.planner import LIMIT_BYTES
from paddock.backends.node.carried import NUMPY_MIN
from paddock.jobfile.parse import parse
from paddock.jobfile.servers import decide_servers, uses_ps

if TYPE_CHECKING:
    from collections.abc import Callable

    Launch = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).parents[3]
SHOWS = 'import paddock.ps, os\nprint(paddock.__file__)\nprint(os.environ["PYTHONPATH"])\n'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages with numpy in it, for a Python that has none."""
    folder = tmp_path / "site"
    folder.mkdir()
    numpy = find_spec("numpy")
    assert numpy is not None and numpy.submodule_search_locations is not None
    (found,) = numpy.submodule_search_locations
    for each in (Path(found), Path(found).with_name("numpy.libs")):
        if each.exists():
            (folder / each.name).symlink_to(each)
    return folder


@pytest.fixture
def launch(tmp_path: Path, site: Path) -> Launch:
    """`paddock launch` from an unpacked archive, by a Python that has no packages of its own."""
    program = unpack_into(tmp_path / "program", has_ps=True)
    (tmp_path / "train.py").write_text(SHOWS)
    python: str = getattr(sys, "_base_executable", sys.executable)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        words = words or ("launch", "--log_dir", str(tmp_path / "log"), "--tail", "all", "train.py")
        return subprocess.run(
            [python, "-S", str(program), *words], cwd=tmp_path, text=True, timeout=60,
            env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, check=False,
        )  # fmt: skip

    return run


def test_it_is_packed_once_for_all_who_ask_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Packing takes longer than a connection: 32 hosts at once would cost 32 times as much."""
    fresh, made = importlib.reload(program), []

    class Counted(zipfile.ZipFile):
        def __init__(self, *words: Any) -> None:
            made.append(1)
            super().__init__(*words)

    monkeypatch.setattr(fresh.zipfile, "ZipFile", Counted)
    with ThreadPoolExecutor(8) as pool:
        found = {
            future.result() for future in [pool.submit(fresh.build, has_ps=False) for _ in range(8)]
        }
    assert (len(made), len(found)) == (1, 1)


def test_its_name_is_of_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that has the sources of another day must be sent these."""
    before = program.digest(has_ps=False)
    assert program.digest(has_ps=True) != before
    other = importlib.reload(program)
    monkeypatch.setattr(other, "START", "pass\n")
    assert other.digest(has_ps=False) != before
    assert importlib.reload(program).digest(has_ps=False) == before


def test_only_the_larger_one_has_the_parameter_server() -> None:
    """And what `python -m paddock pserver` needs."""
    names = [
        set(zipfile.ZipFile(io.BytesIO(build(has_ps=has_ps))).namelist())
        for has_ps in (False, True)
    ]
    assert names[0] < names[1]
    assert not any(name.startswith("paddock/ps/") for name in names[0])
    assert {"paddock/__main__.py", "paddock/cli/pserver.py", "paddock/ps/xxh3.py"} <= names[1]
    assert len(build(has_ps=True)) < LIMIT_BYTES  # what a ConfigMap can hold
    assert all(path.suffix in (".py", ".yaml", ".typed", "") for path in map(Path, names[1]))


def test_lines_of_the_larger_one_have_the_numbers_of_the_source() -> None:
    """A traceback from a host leads to the right line; functions lose their docstrings only."""
    root = Path(program.__file__).parents[3]
    archive = zipfile.ZipFile(io.BytesIO(build(has_ps=True)))
    changed = 0
    for name in archive.namelist():
        if not name.endswith(".py") or name == "__main__.py":
            continue
        packed, source = archive.read(name).split(b"\n"), (root / name).read_bytes().split(b"\n")
        assert len(packed) == len(source), name
        differs = [(p, s) for p, s in zip(packed, source, strict=True) if p != s]
        assert {p.strip() for p, _ in differs} <= {b"", b'""'}, name
        compile(b"\n".join(packed), name, "exec")
        changed += len(differs)
    assert changed > 1000


def test_trainers_find_it_where_no_paddock_is_installed(launch: Launch, tmp_path: Path) -> None:
    """Behind what was in PYTHONPATH."""
    done = launch()
    assert done.returncode == 0, done
    assert str(tmp_path / "program" / "paddock" / "__init__.py") in done.stdout
    assert f"{tmp_path / 'site'}{os.pathsep}{tmp_path / 'program'}\n" in done.stdout
    assert "warning" not in done.stderr


def test_it_explains_itself(launch: Launch) -> None:
    """To who looks into a host, or a pod."""
    for words in (("launch", "--help"), ("explain", "train.py")):
        done = launch(*words)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("version", [__version__, "99.0"])
def test_an_installed_paddock_is_not_hidden(launch: Launch, site: Path, version: str) -> None:
    """It is used; another version is told."""
    package = site / "paddock" / "ps"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").write_text(f"__version__ = {version!r}\n")
    done = launch()
    assert done.returncode == 0, done
    assert str(package.parent / "__init__.py") in done.stdout
    warning = f"has paddock {version}: servers and trainers there use that, not the {__version__}"
    assert (warning in done.stderr) == (version != __version__)


@pytest.mark.parametrize(
    ("text", "what"),
    [("__version__ = '1.24.2'", "numpy 1.24.2 is older than 1.26"),
     ("raise ImportError('libz.so.1: cannot open')", "cannot be imported: libz.so.1"),
     ("import os; os._exit(3)", "cannot be asked for numpy: it ended with 3"),
     ("", "there is no numpy")],
)  # fmt: skip
def test_numpy_that_will_not_do_is_named(launch: Launch, site: Path, text: str, what: str) -> None:
    """With the host, before anything has started."""
    (site / "numpy").unlink()
    if text:
        (site / "numpy.py").write_text(text)
    for words in ((), ("ready",)):
        done = launch(*words)
        assert done.returncode == 2
        assert f"paddock: error: {os.uname().nodename}: " in done.stderr and what in done.stderr
        assert (what in done.stdout) == bool(words)  # for the script of mpirun, which keeps it


def test_the_range_of_numpy_is_that_of_the_extra() -> None:
    """Said once for pip, and once for hosts."""
    assert f'ps = ["numpy>={NUMPY_MIN}",' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("flags", "script", "is_used"),
    [([], "from paddock.ps import Client", True), ([], "import paddock", False),
     (["--server_num=1"], "import paddle", False),
     (["--server_num=1", "--server_script=pserver"], "import paddle", True),
     (["--server_num=1"], "", True), ([], "", False)],
)  # fmt: skip
def test_jobs_that_use_it_are_known(
    tmp_path: Path, flags: list[str], script: str, is_used: bool
) -> None:
    """By their servers, or by the script in the package; "" is one that is on the hosts only."""
    if script:
        (tmp_path / "train.py").write_text(script)
    job = decide_servers(parse([*flags, "train.py"], {}, python="python3").job)
    assert uses_ps(job, str(tmp_path)) is is_used


def test_a_job_with_servers_takes_the_recommendation_models_along() -> None:
    """`paddock rec` starts its worker where nothing of Paddock is installed."""
    with zipfile.ZipFile(io.BytesIO(build(has_ps=True))) as archive:
        names = set(archive.namelist())
    assert {"paddock/rec/worker.py", "paddock/rec/config/resolve.py"} <= names
