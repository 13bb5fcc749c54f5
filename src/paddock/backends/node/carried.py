"""The parameter server that came with the launcher: its needs on this host, and how it is found.

A job that uses `paddock.ps` gets an archive with it. It never hides an installed paddock:
that is used if there is one, and only otherwise the archive goes to the end of PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import sys

import paddock
from paddock.errors import UsageError, problem_text
from paddock.jobfile.args import record_of
from paddock.local.runs.record import keep_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

READY = "ready"  # instead of a command: only print what is missing, and a hint
NUMPY_MIN = "1.26"  # of paddock-train[ps] in pyproject.toml
PROBE = """\
import importlib.util, json
found = {"numpy": "", "why": "", "paddock": ""}
try:
    import numpy
    found["numpy"] = numpy.__version__
except Exception as error:
    found["why"] = str(error) or type(error).__name__
try:
    if importlib.util.find_spec("paddock.ps"):
        from paddock import __version__
        found["paddock"] = __version__
except ImportError:
    pass
print(json.dumps(found))
"""


def start() -> None:
    """Make the archive's parameter server importable for the job's processes, and check numpy."""
    try:
        installed = look(sys.executable, os.environ)
    except UsageError as error:
        error = UsageError(f"{os.uname().nodename}: {error.message}", hint=error.hint)
        if sys.argv[1:] == [READY]:
            sys.stdout.write(f"{error.message}\n{error.hint}\n")
            sys.stdout.flush()
        keep_error(record_of(sys.argv[2:]), error.message)
        sys.stderr.write(problem_text(error))
        sys.exit(error.exit_code)
    if sys.argv[1:] == [READY]:
        sys.exit(0)
    if not installed:
        own = os.path.dirname(os.path.dirname(os.path.abspath(paddock.__file__)))
        kept = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join((kept, own) if kept else (own,))
    elif installed != paddock.__version__:
        sys.stderr.write(
            f"paddock: warning: {os.uname().nodename}: {sys.executable} has paddock {installed}:"
            f" servers and trainers there use that, not the {paddock.__version__} of this job\n"
        )


def look(python: str, env: Mapping[str, str]) -> str:
    """Return the version of the parameter server installed, or "". Raises UsageError (no numpy)."""
    import subprocess

    try:
        done = subprocess.run(
            [python, "-c", PROBE], cwd="/", env=dict(env), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", check=False,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"{python}: {error.strerror}") from error
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise UsageError(f"{python} cannot be asked for numpy: {last[0][:200]}") from None
    if problem := numpy_problem(found["numpy"], found["why"]):
        raise UsageError(
            f"{problem} ({python}); the parameter server needs it",
            hint=f"there: {python} -m pip install 'numpy>={NUMPY_MIN}';"
            " or name another Python: --interpreter, interpreter = in the site",
        )
    return str(found["paddock"])


def numpy_problem(version: str, why: str) -> str:
    """Return the problem with numpy; "" if there is none.

    >>> numpy_problem("2.4.0rc1", ""), numpy_problem("1.24.2", "")
    ('', 'numpy 1.24.2 is older than 1.26')
    >>> numpy_problem("", "libz.so: cannot open")
    'numpy cannot be imported: libz.so: cannot open'
    """
    if not version:
        if why == "No module named 'numpy'":
            return "there is no numpy"
        return f"numpy cannot be imported: {why[:200]}"
    least = tuple(map(int, NUMPY_MIN.split(".")))
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])
    return f"numpy {version} is older than {NUMPY_MIN}" if numbers < least else ""
