"""What a script imports, as earlier runs have learned it; and when that is not to be trusted."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paddock.local.warm.profile import ImportProfile, lines_of, side_effects

if TYPE_CHECKING:
    from local.jobs import World

SCRIPT = """\
import os, a
os.environ["X"] = "1"
import b
if other:
    os.environ["Y"] = "1"
    os.environ["X"] = "2"
import c
"""
COLD, WARM = False, True


@pytest.fixture
def learned(tmp_path: Path) -> ImportProfile:
    """Of a script of which nothing is known yet."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    found = ImportProfile(str(tmp_path / "cache" / "one.json"))
    found.script = str(script)
    return found


def noted(learned: ImportProfile, words: str) -> str:
    """What the rank writes: a module, VARIABLE@line, or .module for one of the user's."""
    lines = []
    for word in words.split():
        name, _, line = word.partition("@")
        if line:
            lines.append(f"w\0{name}\0{learned.script}:{line}")
        else:
            lines.append(f"u\0{name[1:]}\0" if name.startswith(".") else f"i\0{name}")
    return "\n".join(lines)


# Runs one after the other: what each noted; what is imported before the next; said.
RUNS = [
    ("all that is installed counts, in its order", [("b .m a b", "b a")], ""),
    ("other arguments import more", [("a", "a"), ("c", "a c")], ""),
    ("nothing after a variable", [("a X@2 b c", "a")], ""),
    ("a variable that is read late does not count", [("a XLA_FLAGS@2 MASTER_PORT@2 b", "a b")], ""),
    ("nothing after what patches", [("a gevent gevent.monkey b", "a")], ""),
    ("another run may not add what came after", [("a X@2 b", "a"), ("b c", "a")], ""),
    ("the same variable again is no news", [("a X@2 b", "a"), ("X@2 b Y@5 X@6", "a")], ""),
    ("a variable that was not set before", [("a b", "a b"), ("X@2", "")], "train.py:2 sets X"),
    ("another one", [("a X@2 b", "a"), ("Y@5 X@2", "")], "train.py:5 sets Y"),
    ("the same one elsewhere", [("a X@2 b", "a"), ("X@6", "")], "train.py:6 sets X"),
    ("what patches was not imported", [("a b", "a b"), ("gevent", "")], "gevent is imported"),
    ("news are learned anew", [("a b", "a b"), ("X@2", ""), ("a X@2 b", "a")], ""),
]


@pytest.mark.parametrize(("runs", "said"), [r[1:] for r in RUNS], ids=[r[0] for r in RUNS])
def test_names_count_up_to_what_changes_the_others(
    learned: ImportProfile, runs: list[tuple[str, str]], said: str
) -> None:
    """What is imported before the script must not miss what the script does first."""
    for words, names in runs:
        news = learned.add(noted(learned, words), was_warm=bool(learned.names))
        assert learned.names == names.split()
    assert said in news
    assert bool(said) == bool(news)


@pytest.mark.parametrize(
    ("words", "late"),
    [
        ("a b", ""),
        ("a X@2 b c", "each process imports 2 modules by itself, after {script}:2 sets X "
                      "(--env X=... sets it before)"),
        ("gevent a", "each process imports 1 module by itself, after gevent, which patches them"),
    ],
)  # fmt: skip
def test_why_names_are_not_all_is_told(learned: ImportProfile, words: str, late: str) -> None:
    """With what to do about it."""
    learned.add(noted(learned, words), was_warm=COLD)
    assert learned.late == late.format(script=learned.script)


# An edit: (from, to, whether what was learned is forgotten).
EDITS = [
    ("import c", "import c, d", True),
    ('"Y"] = "1"', '"Z"] = "1"', True),
    ("import os, a", "import os\n# more\nimport a", True),
    ("if other:", "# more\nif  other:", False),
    ('    os.environ["X"] = "2"\n', "", True),
]


@pytest.mark.parametrize(("old", "new", "is_forgotten"), EDITS, ids=[e[0] for e in EDITS])
def test_another_order_of_variables_and_imports_is_learned_anew(
    learned: ImportProfile, old: str, new: str, is_forgotten: bool
) -> None:
    """Before the next start, not after it; other edits cost nothing."""
    learned.add(noted(learned, "a X@2 b"), was_warm=COLD)
    assert learned.check() == ""
    assert old in SCRIPT
    Path(learned.script).write_text(SCRIPT.replace(old, new))
    assert bool(learned.check()) == is_forgotten
    assert learned.names == ([] if is_forgotten else ["a"])


def test_an_edit_while_the_script_runs_is_of_the_next_start(learned: ImportProfile) -> None:
    """What a run has learned at its end is of the text that it was started with."""
    assert learned.check() == ""
    Path(learned.script).write_text('import os\nos.environ["Z"] = "1"\n' + SCRIPT)
    learned.add(noted(learned, "a X@2 b"), was_warm=COLD)
    assert learned.check() != ""
    assert learned.names == []


# (script, what of it comes before an import and may matter to that)
TOUCHES = [
    ("import a\na.b = 1\nimport c\n", "a.b"),
    ("import a.b as x\nx.f(1)\nimport c\n", "x.f()"),
    ("from a import f\nf()\nimport c\n", "f()"),
    ("from a import b\nb[0] += 1\nimport c\n", "b[0]"),
    ("import a\ntry:\n    del a.b\nfinally:\n    import c\n", "a.b"),
    ("import a\nif a:\n    a.f().b: int = 1\nimport c\n", "a.f().b"),
    ("import a\nimport c\na.b = 1\n", ""),
    ("import a\ndef f():\n    a.b = 1\nimport c\n", ""),
    ("import a\nx = a.f()\nx.y = 1\nprint(a)\nimport c\n", ""),
    ("import sys, os.path\nsys.path.append('.')\nos.nice(1)\nimport c\n", ""),
    ("from . import a\na.b = 1\nimport c\n", ""),
    ("import a\na.b = = 1\nimport c\n", ""),
    ("import a\na.b = '\\d'\nimport c\n", "a.b"),
]


@pytest.mark.parametrize(("text", "found"), TOUCHES)
def test_what_a_script_does_to_its_imports_is_found(text: str, found: str) -> None:
    """Above its last import, outside functions, to what is imported; the rest is its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # they are the script's
        assert [what for _, what in side_effects(text.encode())] == ([found] if found else [])


def test_another_value_in_such_a_line_is_the_same_bar(learned: ImportProfile) -> None:
    """What it changes counts, and not to what: nothing was imported after it."""
    script = "import a\na.set_seed(1)\nimport b\n"
    Path(learned.script).write_text(script)
    assert learned.check() == ""
    learned.add("i\0a\x001\ni\0b\x003", was_warm=COLD)
    assert learned.late.endswith("train.py:2 uses a.set_seed()")
    Path(learned.script).write_text(script.replace("1", "2"))
    assert learned.check() == ""
    assert learned.add("i\0b\x003", was_warm=WARM) == ""
    assert learned.names == ["a"]


def test_a_line_that_moved_is_the_same_bar(learned: ImportProfile) -> None:
    """Lines that are added above it change its number only."""
    learned.add(noted(learned, "a X@2 b"), was_warm=COLD)
    Path(learned.script).write_text("\n\n" + SCRIPT)
    assert learned.add(noted(learned, "X@4 b"), was_warm=WARM) == ""
    assert learned.names == ["a"]


@pytest.mark.parametrize(
    ("text", "is_empty"),
    [("import a\n", True), ("os.putenv('X', '1')\n", False), ("import eventlet\n", False)],
)
def test_a_script_without_bars_may_change_its_imports(
    tmp_path: Path, text: str, is_empty: bool
) -> None:
    """Its lines are not remembered at all."""
    path = tmp_path / "train.py"
    path.write_text(text)
    assert (lines_of(str(path)) == "") == is_empty


@pytest.mark.parametrize("change", ["interpreter", "package"])
def test_reasons_are_of_one_interpreter_and_its_packages(
    learned: ImportProfile, tmp_path: Path, change: str
) -> None:
    """A module that could not be forked may be another one now."""
    site = tmp_path / "site"
    site.mkdir()
    learned.areas = [str(site)]
    learned.add(noted(learned, "a b X@2"), was_warm=COLD)
    learned.left_out["b"] = "it starts a thread"
    assert learned.write("python3.11") == ""

    same = ImportProfile(learned.path)
    same.read("python3.11")
    assert (same.names, same.left_out) == (["a", "b"], learned.left_out)
    assert same.boundary == learned.boundary
    if change == "package":
        (site / "b-2.0.dist-info").mkdir()
        os.utime(site, (1, 1))
    other = ImportProfile(learned.path)
    other.read("python3.12" if change == "interpreter" else "python3.11")
    assert (other.names, other.left_out, other.note) == (["a", "b"], {}, "")


# ------------------------------------------------------------------------- with real processes


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages, which the interpreter takes for the user's own site."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    path = tmp_path / "user" / "lib" / version / "site-packages"
    path.mkdir(parents=True)
    return path


def start_twice(world: World, site: Path, *words: object, ranks: int = 2) -> list[str]:
    """Launch it cold and warm; what the second said on stderr."""
    env = {
        "XDG_CACHE_HOME": str(world.folder / "cache"),
        "PYTHONUSERBASE": str(site.parents[2]),
        "PYTHONPATH": f"{world.source}{os.pathsep}{site}",
    }
    count = ("--nproc_per_node", ranks) if ranks else ()
    for _ in range(2):
        done = world.run("--warm", "on", *count, *words, env=env)
        assert (done.code, done.left) == (0, []), done.console
    return [line for line in done.err.splitlines() if "arm: " in line]


# How a module reads what differs between ranks: (by what, what).
READS = [
    ("os.environ['RANK']", "RANK, which differs"),
    ("os.environ.get('RANK')", "RANK, which differs"),
    ("os.getenv('RANK', '')", "RANK, which differs"),
    ("os.environb.get(b'RANK', b'').decode()", "RANK, which differs"),
    ("'RANK' in os.environ and os.environ['RANK']", "RANK, which differs"),
    ("dict(os.environ).get('RANK')", "all variables, some of which differ"),
    ("os.environ.copy().get('RANK')", "all variables, some of which differ"),
    ("[v for k, v in os.environ.items() if k == 'RANK']", "all variables, some of which differ"),
]


def test_modules_that_read_a_ranks_variable_are_named(world: World, site: Path) -> None:
    """Each rank imports them; the reason names the module, not what it reads it with."""
    names = [f"reader{number}" for number in range(len(READS))]
    for name, (read, _) in zip(names, READS, strict=True):
        (site / f"{name}.py").write_text(f"import os\nseen = {read}\n")
    seen = ", ".join(f"*{name}.seen" for name in names)
    script = world.script(f"import {', '.join(names)}\ntell('seen', RANK, {seen})\n")
    start_twice(world, site, script)
    told = [("seen", rank, *[rank] * len(names)) for rank in ("0", "1")]
    assert sorted(world.events.wait("seen", count=4)) == sorted(told * 2)
    (cache,) = (world.folder / "cache" / "paddock" / "warm").iterdir()
    found = ImportProfile(str(cache))
    found.read(None)
    assert found.left_out == {
        name: f"{name} reads {what} between ranks"
        for name, (_, what) in zip(names, READS, strict=True)
    }


@pytest.mark.parametrize("is_installed", [False, True])
def test_a_script_that_sets_a_variable_first_is_told_why_it_is_slow(
    world: World, site: Path, is_installed: bool
) -> None:
    """What it imports sees the variable, and a line says what to do; also of python -m PACKAGE."""
    (site / "reader.py").write_text("import os\nseen = os.environ.get('MODE')\n")
    text = "os.environ['MODE'] = 'fast'\nimport reader, email.message, tarfile\n"
    script = world.script(text + "tell('seen', reader.seen)\n")
    words = [script]
    if is_installed:
        Path(script).rename(site / "tool.py")
        words = ["-m", "tool"]
    (line,) = start_twice(world, site, *words)
    assert world.events.wait("seen", count=4) == [("seen", "fast")] * 4
    assert "sets MODE (--env MODE=... sets it before)" in line


def test_what_a_script_does_to_its_imports_is_seen_by_those_below(world: World, site: Path) -> None:
    """Also where it was learned before that line was there; and a line says why it is slow."""
    (site / "third.py").write_text("import decimal\nseen = str(decimal.Decimal(1) / 3)[:9]\n")
    below = "import third, email.message, tarfile\ntell('seen', third.seen)\n"
    script = world.script(f"import decimal\n{below}")
    (line,) = start_twice(world, site, script)
    assert "modules imported once" in line
    world.script(f"import decimal\ndecimal.getcontext().prec = 5\n{below}")
    (line,) = start_twice(world, site, script)
    assert "uses decimal.getcontext().prec" in line
    assert world.events.wait("seen", count=8)[4:] == [("seen", "0.33333")] * 4


def test_flags_that_paddle_read_at_import_are_set_again(world: World, site: Path) -> None:
    """FLAGS_selected_gpus differs between ranks, and the library has read it before the fork."""
    (site / "paddle").mkdir()
    (site / "paddle" / "__init__.py").write_text("")
    (site / "paddle" / "base.py").write_text(
        "class core:\n    globals = staticmethod(lambda: {'FLAGS_selected_gpus': ''})\n"
        "seen = {}\nset_flags = seen.update\n"
    )
    flags = ("--env", "FLAGS_selected_gpus=1", "--env", "FLAGS_selected_other=2")
    script = world.script("import paddle.base\ntell('set', *paddle.base.seen.items())\n")
    start_twice(world, site, *flags, script, ranks=1)
    told = world.events.wait("set", count=2)
    assert told == [("set",), ("set", "('FLAGS_selected_gpus',", "'1')")]


def test_the_store_of_paddle_does_not_wait_for_acknowledgements(world: World, site: Path) -> None:
    """Each of its requests would take 40 ms; sockets of the script are as it has made them."""
    (site / "paddle").mkdir()
    (site / "paddle" / "__init__.py").write_text("")
    (site / "paddle" / "base.py").write_text(
        "import socket, types\nends = []\n"
        "def create():\n"
        "    ends.append(socket.create_connection(ends[0].getsockname()))\n    return 'store'\n"
        "core = types.SimpleNamespace(globals=dict, create_or_get_global_tcp_store=create)\n"
    )
    script = world.script(
        "from paddle.base import core, create, ends\nfrom socket import *\n"
        "ends.append(create_server(('127.0.0.1', 0)))\n"
        "ends.append(create_connection(ends[0].getsockname()))\n"
        "store = core.create_or_get_global_tcp_store()\n"
        "delays = [end.getsockopt(IPPROTO_TCP, TCP_NODELAY) == 0 for end in ends]\n"
        "tell('store', store, core.create_or_get_global_tcp_store is create, *delays)\n"
    )
    start_twice(world, site, script, ranks=1)
    told = world.events.wait("store", count=2)
    assert told == [
        ("store", "store", "True", "True", "True", str(delay)) for delay in (True, False)
    ]


def test_ranks_of_torch_ask_a_name_server_again_soon(world: World, site: Path) -> None:
    """Its store asks for a name at every connection; what the user has set stays."""
    (site / "torch.py").write_text("")
    script = world.script("import torch\ntell('set', os.environ.get('RES_OPTIONS'))\n")
    start_twice(world, site, script, ranks=1)
    start_twice(world, site, "--env", "RES_OPTIONS=ndots:2", script, ranks=1)
    told = [" ".join(words) for _, *words in world.events.wait("set", count=4)]
    assert told == ["None", "timeout:1 attempts:5", "ndots:2", "ndots:2"]


def test_servers_of_the_same_script_are_started_as_ever(world: World, site: Path) -> None:
    """They may set other variables before its imports, and fewer start than workers."""
    (site / "reader.py").write_text("import os\nseen = os.environ.get('MODE')\n")
    script = world.script(
        "role = os.environ['TRAINING_ROLE']\nif role == 'PSERVER':\n    os.environ['MODE'] = role\n"
        "import reader\ntell('seen', role, reader.seen)\nup = f'up-{os.getppid()}'\n"
        "open(up, 'a') if role == 'PSERVER' else None\n"
        "while not os.path.exists(up):\n    time.sleep(0.01)\n"
    )
    words = ("--server_num", 1, "--server_script", script, "--worker_num", 2, script)
    told = start_twice(world, site, *words, ranks=0)
    assert sorted(world.events.wait("seen", count=6)) == [
        *[("seen", "PSERVER", "PSERVER")] * 2, *[("seen", "TRAINER", "None")] * 4,
    ]  # fmt: skip
    assert told[-1].endswith(" for 2 processes")
