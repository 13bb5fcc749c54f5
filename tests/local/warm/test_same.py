"""A rank that was forked is what `python -u script args` would have been: both are run, compared.

Every row is started cold, then warm twice: the first warm start learns what the script imports,
the second has imported it before the fork, which is asserted.
"""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.jobs import ROOT, World
from local.warm.pack import IN_ASCII

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HERE = Path(__file__).resolve().parent
HOOK = ROOT / "src/paddock/local/warm/hook/sitecustomize.py"
# What differs between any two starts: ports, names, times, addresses, processes.
MASKED = re.compile(
    r"(?<=127\.0\.0\.1:)\d+|(?<=PORT=)\d+|(?<=PORT', ')\d+|(?<=PORT', b')\d+|0x[0-9a-f]+"
    r"|(?<=\.paddock/)\w+|(?<=UID=)\w+|(?<=UID', ')\w+|(?<=UID', b')\w+"
    r"|(?<=RUN_ID=)\w+|(?<=RUN_ID', ')\w+|(?<=RUN_ID', b')\w+"
    r"|(?<=POD_NAME=)\w+|(?<=POD_NAME', ')\w+|(?<=POD_NAME', b')\w+"
    r"|(?<=TEST_JOB_MARK=)\w+|(?<=MARK', ')\w+|(?<=MARK', b')\w+|(?<=log-)\w+"
    r"|(?m:^.* LAUNCH )|\d{4}-\d\d-\d\d [\d:,]+|(?<=pid )\d+|(?<=Pod: )\w+|(?<=Thread )\w+"
)
WAYS = ("off", "on", "keep")
LEARNER = "<class 'sitecustomize._Learner'>, "
HEADER = re.compile(r"\n----- paddock: .* -----\n")


@dataclass(frozen=True)
class Way:
    """How one start went. texts: of each rank's log."""

    code: int
    texts: tuple[str, ...]
    console: str

    @property
    def logs(self) -> tuple[str, ...]:
        """Without what differs between any two starts."""
        return tuple(MASKED.sub("@", HEADER.sub("", text)) for text in self.texts)

    @property
    def verdict(self) -> list[str]:
        """What the launcher says of it in the end."""
        lines = MASKED.sub("", self.console).splitlines()
        at = [n for n, line in enumerate(lines) if "Watching Pod" in line][-1]
        return [line for line in lines[at + 1 :] if "warm:" not in line]


def start(
    world: World,
    warm: str,
    *words: object,
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
    stdin: bytes | int | None = None,
) -> Way:
    """Start a job of this script."""
    log_dir = world.folder / f"log-{len(world.running)}"
    # Not another worker's, whose folder has the same name.
    mark = re.sub(r"\W", "_", str(world.folder)) if warm == "keep" else ""
    cache = {
        "XDG_CACHE_HOME": str(world.folder / "cache"),
        "XDG_RUNTIME_DIR": str(world.folder),
    }
    read_fd = stdin if isinstance(stdin, int) else None
    if isinstance(stdin, bytes):
        read_fd, write_fd = os.pipe()
        os.write(write_fd, stdin)
        os.close(write_fd)
    running = world.start(
        "--warm",
        warm,
        *words,
        env={**cache, "PADDOCK_CONSOLE": "paddle", **(env or {})},
        before=before,
        stdin=read_fd,
        stderr=subprocess.STDOUT,  # of one place: what a rank writes to both keeps its order
        log_dir=log_dir,
        mark=mark,
    )
    if read_fd is not None:
        os.close(read_fd)
    if warm == "keep":
        code, console = running.process.wait(60), running.close()
    else:
        ended = running.end()
        code, console = ended.code, ended.console
        assert ended.left == []
    paths = sorted(log_dir.glob("workerlog.*"))
    assert paths, console
    texts = tuple(path.read_bytes().decode("utf-8", "backslashreplace") for path in paths)
    return Way(code, texts, console)


def start_all(world: World, *words: object, **how: object) -> list[Way]:
    """Cold, learning, warm."""
    ways = [start(world, warm, *words, **how) for warm in ("off", "on", "on")]  # type: ignore[arg-type]
    assert "learning what the script imports" in ways[1].console
    assert "modules imported once" in ways[2].console, ways[2].console
    return ways


def facts_of(way: Way) -> dict[str, str]:
    """What tests/local/warm/facts.py has printed."""
    assert way.code == 0, way.console
    rows = [line.partition(" = ") for line in way.logs[0].splitlines()]
    return {name: fact for name, _, fact in rows}


def assert_same_facts(ways: list[Way]) -> None:
    """But for what a warm start is about: some modules are there before."""
    cold, learning, warm = map(facts_of, ways)
    before, after = (set(ast.literal_eval(cold[key])) for key in ("modules", "modules then"))
    for found in (learning, warm):
        found["meta_path"] = found["meta_path"].replace(LEARNER, "")
        there = set(ast.literal_eval(found["modules"]))
        assert there - before <= (after if found is warm else {"atexit", "gc"})
        assert before <= there
        found["modules"] = cold["modules"]
        assert {key for key in cold if cold[key] != found.get(key)} == set()
        assert found == cold


FACTS = (HERE / "facts.py").read_text()
SHAPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "script": ("facts.py", ("facts.py",)),
    "odd arguments": (
        "facts.py",
        ("facts.py", "", "a b", "-x", "--", "line\nline", "\udcff\u4e2d"),
    ),
    "folder with odd names": ("a b \u4e2d/f \udcff.py", ("a b \u4e2d/f \udcff.py",)),
    "dashes": ("-facts.py", ("--", "-facts.py")),
    "symbolic link": ("far/away.py", ("link.py",)),
    "module": ("facts.py", ("-m", "facts")),
    "module in a package": ("pack/age/facts.py", ("-m", "pack.age.facts")),
    "package": ("pack/age/__main__.py", ("-m", "pack.age")),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_script_finds_the_same_around_itself(world: World, shape: str) -> None:
    """Whatever way it is started."""
    path, words = SHAPES[shape]
    file = world.folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(FACTS)
    if path.startswith("pack"):
        (world.folder / "pack/__init__.py").write_text("import json\n")
        (world.folder / "pack/age/__init__.py").write_text("")
    (world.folder / "link.py").symlink_to(path)
    assert_same_facts(start_all(world, *words))


VARIABLES: tuple[dict[str, str], ...] = (
    {"PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "7"},
    {"PYTHONPATH": "", "PYTHONOPTIMIZE": "2"},
    {"PYTHONPATH": "odd::relative:/no/such/folder", "PYTHONWARNINGS": "error,default"},
    {"PYTHONDEVMODE": "1", "PYTHONNOUSERSITE": "1"},
    {"PYTHONUTF8": "1", "PYTHONIOENCODING": "latin-1:replace", "LC_ALL": "C"},
    {"PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX", "PYTHONFAULTHANDLER": "1"},
    {"PYTHONPYCACHEPREFIX": "/tmp/none", "PYTHONINTMAXSTRDIGITS": "700", "PYTHONASYNCIODEBUG": "1"},
    {"PYTHONMALLOC": "debug", "PYTHONNODEBUGRANGES": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    {"ODD": "\udcff\u4e2d\n=", "PYTHONUNBUFFERED": "", "PYTHONDEBUG": ""},
)


@IN_ASCII
@pytest.mark.parametrize("env", VARIABLES, ids=lambda env: next(iter(env)))
def test_variables_of_the_interpreter_have_the_same_effect(
    world: World, env: dict[str, str]
) -> None:
    """Python reads them before anything of ours runs."""
    (world.folder / "facts.py").write_text(FACTS)
    words = [f"--env={name}={text}" for name, text in env.items()]
    assert_same_facts(start_all(world, *words, "facts.py"))


# What is done, and its arguments.
DOINGS: tuple[tuple[str, ...], ...] = (
    *(("exit_with", text) for text in ("None", "0", "7", "True", "265", "-1", "1 << 80")),
    *(("exit_with", text) for text in ("'a text'", "['a', print]", "b''")),
    ("exit_at_once",),
    ("raise_plainly",),
    ("raise_from_another",),
    ("raise_during_another",),
    ("raise_in_own_module",),
    ("import_what_cannot_be_read",),
    ("import_what_is_missing",),
    ("read_what_is_not_set",),
    ("delete_what_is_not_set",),
    ("recurse",),
    ("raise_in_thread",),
    ("raise_in_del",),
    ("raise_with_own_hook",),
    ("end_in_order",),
    ("be_interrupted",),
    ("handle_a_signal",),
    *(("be_killed", str(number)) for number in (1, 3, 6, 9, 11, 13, 14, 15, 25, 64)),
    ("write_to_nobody",),
    ("touch_nothing",),
    ("warn",),
    ("write_in_turns",),
    ("write_to_closed",),
    ("lose_the_folder",),
    ("run_a_loop",),
    ("start_others",),
    ("use_processes",),
    ("copy_all",),
    ("run_another",),
    ("import_own",),
)
BESIDE = {
    "own.py": "import json\nNAME = __name__\nTEXT = json.dumps([1])\n",
    "colorsys.py": "",  # is in the standard library, too
    "broken.py": "import json\ndef f():\n    raise ValueError('own')\nf()\n",
    "unreadable.py": "x = = 1\n",
    "another.py": "import sys, json\nprint(__name__, sys.argv, sys.modules['__main__'])\n",
}


def write_ends(world: World) -> None:
    """The script of many ends, and what it imports."""
    for name, text in {**BESIDE, "ends.py": (HERE / "ends.py").read_text()}.items():
        (world.folder / name).write_text(text)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world where it is known what the script imports."""
    made = World(tmp_path_factory.mktemp("ends"))
    write_ends(made)
    start(made, "on", "ends.py", "exit_with", "None")
    yield made
    made.close()


def assert_same_end(cold: Way, warm: Way) -> None:
    """In what people see, too."""
    assert re.search("modules imported (once|by an earlier launch)", warm.console), warm.console
    assert warm.logs == cold.logs
    assert warm.code == cold.code
    assert warm.verdict == cold.verdict


@pytest.mark.parametrize("words", DOINGS, ids=" ".join)
def test_a_script_does_and_ends_the_same(learned: World, words: tuple[str, ...]) -> None:
    """Its output, its exit code, and what the launcher makes of it."""
    cold, *ways = (start(learned, way, "ends.py", *words) for way in WAYS)
    for way in ways:
        assert_same_end(cold, way)


@pytest.mark.parametrize("doing", ["read_stdin", "read_nothing"])
def test_rank_0_reads_what_the_launcher_is_given(learned: World, doing: str) -> None:
    """The others have an empty file."""
    words = ("--nproc_per_node", 2, "ends.py", doing)
    cold, *ways = (start(learned, way, *words, stdin=b"a b\nc\nd\n") for way in WAYS)
    assert len(cold.logs) == 2
    for way in ways:
        assert_same_end(cold, way)


def test_rank_0_asks_at_the_terminal(learned: World) -> None:
    """Where that is the launcher's."""
    ways = []
    for warm in WAYS:
        ours, theirs = pty.openpty()
        os.write(ours, b"a\nb\n")
        ways.append(start(learned, warm, "ends.py", "ask", stdin=theirs))
        os.close(ours)
    assert "'a' b'b" in ways[0].logs[0]
    for way in ways[1:]:
        assert_same_end(ways[0], way)


def test_a_fault_is_shown_with_all_frames(learned: World) -> None:
    """By Python's own faulthandler, where that is asked for."""
    words = ("--env=PYTHONFAULTHANDLER=1", "ends.py", "touch_nothing")
    cold, warm = (start(learned, way, *words) for way in ("off", "on"))
    assert "in touch_nothing" in cold.logs[0]
    assert_same_end(cold, warm)


STATE = """
import os, resource, signal, sys
os.umask(0o27)
os.nice(3)
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))
resource.setrlimit(resource.RLIMIT_STACK, (1 << 22, 1 << 23))
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
open("/proc/self/oom_score_adj", "w").write("5")
os.dup2(os.open("/dev/zero", os.O_RDONLY), 40)
for number in (3, 4, 5):
    os.dup2(40, number)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_a_rank_has_what_its_launcher_was_given(world: World) -> None:
    """Files, limits, signals: as those that started it want it."""
    (world.folder / "facts.py").write_text(FACTS)
    ways = start_all(world, "facts.py", before=[sys.executable, "-c", STATE])
    facts = facts_of(ways[0])
    assert all(f"({number}, '/dev/zero')" in facts["files"] for number in (3, 4, 5, 40))
    assert "'Umask': '0027'" in facts["status"]
    assert_same_facts(ways)


def test_a_rank_of_a_launcher_that_stays_has_it_too(world: World) -> None:
    """But for files beyond the first three; and who its parent is is told otherwise."""
    (world.folder / "facts.py").write_text(FACTS)
    before = [sys.executable, "-c", STATE]
    how = ("off", "keep", "keep")
    ways = [start(world, way, "facts.py", "a b", before=before) for way in how]
    assert "modules imported by an earlier launch" in ways[2].console
    cold, kept = facts_of(ways[0]), facts_of(ways[2])
    assert "/dev/zero" in cold.pop("files") and "/dev/zero" not in kept.pop("files")
    for name in ("modules", "processes", "inherited"):
        assert cold.pop(name) != kept.pop(name)
    kept["meta_path"] = kept["meta_path"].replace(LEARNER, "")
    assert kept == cold


def test_the_users_own_sitecustomize_is_run(world: World) -> None:
    """In every rank, with the rank's own variables, under its own name."""
    text = "import os, sys\nprint(__name__, __spec__, os.environ['RANK'], sys.modules[__name__])\n"
    (world.folder / "place").mkdir()
    (world.folder / "place/sitecustomize.py").write_text(text)
    write_ends(world)
    words = ("--env=PYTHONPATH=place", "--nproc_per_node", 2, "ends.py", "exit_with", "None")
    ways = start_all(world, *words)
    assert "place/sitecustomize.py') 1 <module" in ways[0].logs[1]
    assert ways[0].logs == ways[1].logs == ways[2].logs


def test_the_users_own_sitecustomize_may_fail(world: World) -> None:
    """Python says so and goes on."""
    (world.folder / "place").mkdir()
    (world.folder / "place/sitecustomize.py").write_text("raise ValueError('own')\n")
    write_ends(world)
    ways = start_all(world, "--env=PYTHONPATH=place", "ends.py", "exit_with", "None")
    assert "ValueError: own" in ways[0].logs[0]
    assert ways[0].logs == ways[1].logs == ways[2].logs


def test_the_users_own_code_is_read_anew(world: World) -> None:
    """Edited, or new: what was learned is of installed packages only."""
    write_ends(world)
    start_all(world, "ends.py", "import_own")
    (world.folder / "own.py").write_text("NAME = 'edited'\nTEXT = '[2]'\n")
    (world.folder / "statistics.py").write_text("")  # hides what is installed
    cold, warm = (start(world, way, "ends.py", "import_own") for way in ("off", "on"))
    assert "edited" in cold.logs[0]
    assert_same_end(cold, warm)


def test_what_must_differ_differs(learned: World) -> None:
    """In every rank and in every attempt; but for the seed of hashes, which the ranks share."""
    found = []
    for warm in ("on", "on"):
        way = start(learned, warm, "--nproc_per_node", 2, "--max_restart", 1, "ends.py", "draw")
        found += [
            json.loads(line) for text in way.texts for line in text.splitlines() if "{" in line
        ]
    assert len(found) == 4
    for name in found[0]:
        count = len({json.dumps(row[name]) for row in found})
        assert count == {"hash": 2, "process": 1}.get(name, 4), (name, found)


@pytest.mark.parametrize("name", ["raise_plainly", "read_what_is_not_set", "copy_all"])
def test_a_script_that_is_learned_does_and_ends_the_same(world: World, name: str) -> None:
    """What notes its imports and its variables is not seen."""
    write_ends(world)
    cold, learning, warm = start_all(world, "ends.py", name)
    assert (learning.logs, learning.code, learning.verdict) == (cold.logs, cold.code, cold.verdict)
    assert_same_end(cold, warm)


# A .pth file is code, too, and runs in every interpreter before anything of ours.
SITE_CODE = {
    "import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()": (
        "not warm: code of a .pth file runs before the script: it starts a thread"
    ),
    "import builtins; builtins.file = open('/etc/hostname')": (
        "not warm: code of a .pth file runs before the script: it keeps /etc/hostname open"
    ),
    "import subprocess; subprocess.child = subprocess.Popen(['true'])": (
        "not warm: code of a .pth file runs before the script: it starts a process"
    ),
    "import json, builtins; builtins.found = json.dumps([1])": "modules imported once",
}
LOOK = """
import decimal, os, threading
print(len(threading.enumerate()), len(os.listdir("/proc/self/fd")))
try:
    print(os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_status)
except ChildProcessError:
    print("none")
"""


@pytest.mark.parametrize("code", SITE_CODE, ids=lambda code: code.split()[1].strip(";,"))
def test_what_site_code_has_begun_is_not_lost(world: World, code: str) -> None:
    """A thread, a file, a child: a fork would lose or share it, so there is none."""
    place = world.folder / "env"
    venv.create(place, symlinks=True)
    packages = place / f"lib/python3.{sys.version_info.minor}/site-packages"
    (packages / "odd.pth").write_text(f"{code}\n")
    (world.folder / "look.py").write_text(LOOK)
    ways = [
        start(world, warm, "look.py", before=run_by(place / "bin/python"))
        for warm in ("off", "on", "on")
    ]
    assert SITE_CODE[code] in ways[2].console
    assert ways[0].logs == ways[1].logs == ways[2].logs


def run_by(python: Path) -> list[str]:
    """What to start a launcher with, so that it and its ranks run with this interpreter."""
    return ["sh", "-c", f'shift; exec {python} "$@"', "sh"]


OTHERS = sorted({
    path.resolve()
    for place in (Path("/usr/bin"), *Path(sys.base_prefix).parent.glob("*/bin"))
    for minor in range(10, 16)
    if (path := place / f"python3.{minor}").exists()
} - {Path(sys.executable).resolve()})  # fmt: skip


@pytest.mark.parametrize("python", OTHERS, ids=str)
def test_other_interpreters_of_this_machine_do_the_same(world: World, python: Path) -> None:
    """Those that are here, if any: what of Python is used is not the same in all versions."""
    (world.folder / "facts.py").write_text(FACTS)
    assert_same_facts(start_all(world, "facts.py", before=run_by(python)))


def test_the_hook_is_of_an_old_grammar() -> None:
    """It runs in the user's interpreter, which may be older than what Paddock needs."""
    assert ast.parse(HOOK.read_text(), feature_version=(3, 8)).body
