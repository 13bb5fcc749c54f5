"""What the pages tell people to type is typed here; pages.py has the rules.

Lines to copy, links, flags that prose names, messages of docs/failure.md, and what a page in two
languages has in common.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.backends.flags import split_args
from paddock.cli.completion import every_command
from paddock.cli.family import parse_command
from paddock.cli.jobs import COMMANDS as VERBS
from paddock.command_line import read_line
from paddock.jobfile.parse import parse
from pages import (
    ENGLISH,
    FENCE,
    NO_MODULES,
    PAGES,
    PAIRS,
    REASONS,
    ROOT,
    Block,
    Command,
    blocks_of,
    commands_of,
    without_comments,
)
from terminals import run_block

# Not: notes, which are of their day; what is generated; pages about flags of other programs.
TOLD = [p for p in PAGES if p.parent.name in ("docs", "guide", "tutorials", "concepts", ROOT.name)]
TOLD = [p for p in TOLD if p.name not in ("CONTRIBUTING.md", "benchmarks.md")]
# Tells the main figures only, and links to the English page.
SHORTER = {"benchmarks.zh.md"}
TEN_LINES = ROOT / "examples" / "ps" / "numpy_ten_lines.py"
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")
FLAG = re.compile(r"`(--?[a-zA-Z][\w-]*)")
# Flags of other programs that the pages name.
OTHERS = {
    "--json", "--network", "--shm-size", "--ipc", "--device", "--name", "-v", "-e",
    "--run-path", "--virtual-local-rank", "--numa-binding", "--signals-to-handle", "--logs-specs",
    "--event-log-handler", "--duplicate-stdout-filters", "--duplicate-stderr-filters",
    "--validate", "--map-by", "-ppn",
}  # fmt: skip
NEEDS = {*NO_MODULES, "torch", "paddle", "jax", "paddle, torch or jax"}
LANGUAGES = {"bash", "console", "text", "python", "yaml", "toml", "json", "mermaid"}
# Looks like something to type.
COMMAND = re.compile(
    r"(\$ |[A-Z_]+=\S+ )*(paddock|python|pip|kubectl|srun|sbatch|mpirun|mpiexec|\$) "
)
# What a page may tell people to type on a cluster.
CLUSTER_PROGRAMS = {"kubectl", "helm", "make", "paddock"}
SLOT_TEXT = "click:0 1:17 2:3\nclick:1 1:18 2:4\nclick:0 1:19 2:4\n"
SCRIPT = "import os\nprint('rank', os.environ.get('RANK'), 'of', os.environ.get('WORLD_SIZE'))\n"
JOB = """\
{"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": {"name": "j"},
 "spec": {"worker": {"replicas": 2, "template": {"spec": {"containers": [
   {"name": "c", "image": "i", "command": ["python"], "args": ["train.py"]}]}}}}}
"""


def stand_ins(folder: Path) -> None:
    """The files that the pages' commands name."""
    (folder / "train.py").write_text(SCRIPT)
    (folder / "crash.py").write_text("raise SystemExit(7)\n")
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").touch()
    (folder / "pkg" / "train.py").write_text(SCRIPT)
    (folder / "train.sh").write_text('#!/bin/sh\necho "rank $RANK of $WORLD_SIZE"\n')
    (folder / "train.sh").chmod(0o755)
    (folder / "job.yaml").write_text(JOB)  # JSON is YAML
    (folder / "train.txt").write_text(SLOT_TEXT)
    (folder / "items.csv").write_text("click,item,age\n0,7,31\n1,8,27\n")
    (folder / "data").mkdir()
    for number in range(4):
        text = SLOT_TEXT.replace(" 1:", f" 1:{number + 1}")
        (folder / "data" / f"part-{number:05d}").write_text(text)
    shutil.copytree(ROOT / "examples", folder / "examples")


def run(command: Command, folder: Path) -> tuple[int, str]:
    """Run a command as a user would; exit code, and what is worth reading when it is wrong."""
    stand_ins(folder)
    done = subprocess.run(
        [sys.executable, "-m", *command.words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **command.env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=100,
        check=False,
    )
    return done.returncode, f"{command}\n{done.stdout}"


def once(found: list[Command]) -> list[Command]:
    """A line that stands on several pages is run once, as on the first of them."""
    seen: dict[object, Command] = {}
    for command in found:
        seen.setdefault((command.text, command.code, *command.needs), command)
    return list(seen.values())


def type_all(page: Path, folder: Path) -> list[str]:
    """Type what a page's terminals show, as in a clone; what was not as shown."""
    stand_ins(folder)
    programs = folder.parent / f"{folder.name}.bin"
    programs.mkdir()
    for name, words in (("paddock", "-m paddock "), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PATH": path, "TERM": "xterm"}
    env = {name: text for name, text in env.items() if name != "NO_COLOR"}
    return [text for b in TERMINALS[page] for text in run_block(b.body, folder, env)]


def name_of(page: Path) -> str:
    """A page's name in the repository."""
    return str(page.relative_to(ROOT))


def is_typed(block: Block) -> bool:
    """Whether what it shows is printed on this machine, without Slurm."""
    return block.language == "console" and not block.reason and block.asked != "Slurm"


ALL = [command for page in ENGLISH for command in commands_of(page)]
RUN = once([c for c in ALL if c.is_run and not c.needs and c.words[0] == "paddock"])
READ = [c for c in ALL if not c.is_run and not c.on_cluster]
CLUSTER = [c for c in ALL if c.on_cluster]  # tests/cluster runs these
REAL = once([c for c in ALL if c.needs])
TERMINALS = {
    page: blocks for page in ENGLISH if (blocks := [b for b in blocks_of(page) if is_typed(b)])
}
SHOWN = [page for page, blocks in TERMINALS.items() if not any(b.needs for b in blocks)]
SHOWN_REAL = [page for page in TERMINALS if page not in SHOWN]


def test_the_pages_have_commands_of_every_kind() -> None:
    """Guards the reader of the pages: an expression that matches nothing would pass everything."""
    assert len(RUN) > 30
    assert len(READ) > 10
    assert len(CLUSTER) > 20
    assert REAL


@pytest.mark.parametrize("page", ENGLISH, ids=name_of)
def test_a_command_that_is_not_run_says_why(page: Path) -> None:
    """A reader trusts what looks like a command; ```text is no place to hide one from the tests."""
    for block in blocks_of(page):
        assert block.language in LANGUAGES, f"```{block.language}"
        if block.reason:
            assert block.reason in REASONS
        elif block.language == "text":
            assert [line for line in block.body.splitlines() if COMMAND.match(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_reader_copies_has_no_marker_of_the_tests(page: Path) -> None:
    """What a block needs stands above it, in a comment that is not shown."""
    for block in blocks_of(page):
        assert not re.search(r"# (needs|two hosts|three hosts|on a cluster)\b", block.body)
        assert not block.asked or block.asked in NEEDS, f"needs: {block.asked}"


def test_every_command_is_ours_or_a_target_of_make() -> None:
    """What is not run here must not look as if it were; other programs go into ```text."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in ALL:
        programs = CLUSTER_PROGRAMS if command.on_cluster else {"paddock", "make"}
        assert command.words[0] in programs, str(command)
        if command.words[0] == "make":
            named = {word for word in command.words[1:] if "=" not in word}
            assert named <= targets, str(command)


@pytest.mark.parametrize("command", RUN, ids=str)
def test_a_command_of_the_guides_runs(command: Command, tmp_path: Path) -> None:
    """Copied from the page, it ends as the page says."""
    code, shown = run(command, tmp_path)
    assert code == command.code, shown


@pytest.mark.parametrize("command", READ, ids=str)
def test_a_command_for_several_hosts_is_understood(command: Command) -> None:
    """Flags, values and their combination are right; whether hosts answer is not asked."""
    program, verb, *words = command.words
    assert program == "paddock"
    if verb in VERBS:
        assert (
            parse_command(VERBS[verb], read_line(words, VERBS[verb].table)).jobs or verb == "list"
        )
        return
    if verb == "submit":
        split = split_args(words)
        assert split.problems == []
        words = ["--nnodes", "3", *split.flags, *split.script]
        if not split.script:
            assert split.own["from"]
            return
    else:
        assert verb == "launch"
    parsed = parse(words, command.env, python="python")
    assert parsed.job.nnodes_max > 1


@pytest.mark.parametrize("page", SHOWN, ids=name_of)
def test_what_a_page_shows_is_printed(page: Path, tmp_path: Path) -> None:
    """All its terminals, one after the other, in a folder with the examples."""
    assert type_all(page, tmp_path) == []


def test_a_command_for_a_cluster_names_files_that_are_here() -> None:
    """`kubectl apply -f FILE` is typed in a clone: a file that was renamed would not be found."""
    for command in CLUSTER:
        for flag, name in zip(command.words, command.words[1:], strict=False):
            if flag in ("-f", "-k", "--filename", "--kustomize"):
                assert (ROOT / name).exists(), f"{command}: there is no {name}"


@pytest.mark.real
@pytest.mark.limit(120)
@pytest.mark.parametrize("command", REAL, ids=str)
def test_a_command_that_needs_a_framework_runs(command: Command, tmp_path: Path) -> None:
    """With any one of the frameworks it names."""
    from importlib.util import find_spec

    if not any(find_spec(name) for name in command.needs):
        pytest.skip(f"none of {', '.join(command.needs)} is installed: make .venv/.real")
    code, shown = run(command, tmp_path)
    assert code == command.code, shown


@pytest.mark.real
@pytest.mark.limit(240)
@pytest.mark.parametrize("page", SHOWN_REAL, ids=name_of)
def test_what_a_page_with_a_framework_shows_is_printed(page: Path, tmp_path: Path) -> None:
    """The tutorials: a script that trains, on a terminal."""
    from importlib.util import find_spec

    needs = {name for block in TERMINALS[page] for name in block.needs}
    if lacking := [name for name in sorted(needs) if not find_spec(name)]:
        pytest.skip(f"{', '.join(lacking)} is not installed: make .venv/.real")
    assert type_all(page, tmp_path) == []


def known_flags() -> set[str]:
    """All our flags, with underscores."""
    names = {name for command in every_command() for f in command.table.flags for name in f.names}
    return {n if n[1] != "-" else "--" + n[2:].replace("-", "_") for n in names}


@pytest.mark.parametrize("page", TOLD, ids=name_of)
def test_every_flag_in_the_text_exists(page: Path) -> None:
    """A flag that was renamed must not live on in prose, nor in a command that is not run."""
    known = known_flags()
    named = FLAG.findall(FENCE.sub("", page.read_text("utf-8")))
    for block in blocks_of(page):
        for line in block.body.splitlines() if block.reason else ():
            ours = re.search(r"\bpaddock [^#]*?(?=\S+\.py\b|#|$)", line)
            named += re.findall(r"(?<= )--[a-z][\w-]*", ours[0]) if ours else []
    for flag in named:
        name = flag if flag.count("-") == 1 else "--" + flag[2:].replace("-", "_")
        assert name in known or flag in OTHERS, f"{page.name} names {flag}"


# What stands for something else in the messages of docs/failure.md, or is the system's own word.
PLACEHOLDER = re.compile(
    r"\.\.\.|'[^']*'|\([^)]*\)|\b[A-Z]\b|SIG[A-Z]+|(node|worker) \d|node-[ab]|\d[\w.:]*"
    r"|PaddleJob|Name or service not known|connection closed"
)


def literals() -> str:
    """All texts in the source, one after the other."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                text = node.value
                found.append(text if isinstance(text, str) else text.decode("utf-8", "replace"))
    return "\0".join(found)


def is_ours(message: str, source: str) -> bool:
    """Whether three words in a row of a message's fixed part are in the source."""
    for part in PLACEHOLDER.sub("\0", message).split("\0"):
        words = part.strip(" :;,=").split()
        for at in range(max(1, len(words) - 2)):
            if words and " ".join(words[at : at + 3]) in source:
                return True
    return False


def messages_of(text: str) -> list[str]:
    """Its code spans of three words or more."""
    return [span for span in re.findall(r"`([^`]*)`", text) if span.count(" ") > 1]


def test_every_message_in_the_list_of_failures_is_one_of_ours() -> None:
    """The page quotes what people see; a message that was reworded must be reworded there, too."""
    page = (ROOT / "docs" / "failure.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    cells = [row[1] if len(row) == 4 else f"{row[1]} {row[2]}" for row in rows]
    messages = [message for cell in cells for message in messages_of(cell)]
    source = literals()
    assert len(messages) > 60
    assert [message for message in messages if not is_ours(message, source)] == []


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[1].name)
def test_a_page_in_chinese_has_what_the_english_one_has(pair: tuple[Path, Path]) -> None:
    """The same blocks in the same order, comments aside; so running one runs both.

    And the same rows of tables, which quote what the program says as it says it.
    """
    blocks = [blocks_of(page) for page in pair]
    assert [b.language for b in blocks[1]] == [b.language for b in blocks[0]]
    for english, chinese in zip(*blocks, strict=True):
        if english.language in ("bash", "console"):
            assert without_comments(chinese.body) == without_comments(english.body)
    if pair[1].name in SHORTER:
        return
    texts = [FENCE.sub("", page.read_text("utf-8")) for page in pair]
    links = [{target.replace(".zh.", ".") for target, _ in LINK.findall(t)} for t in texts]
    assert links[1] | {pair[0].name} == links[0] | {pair[0].name}
    for mark in ("|", "#"):
        counts = [sum(line.startswith(mark) for line in text.splitlines()) for text in texts]
        assert counts[1] == counts[0], f"lines with {mark}"
    rows = zip(*([line for line in t.splitlines() if line[:1] == "|"] for t in texts), strict=True)
    for row in rows:
        english, chinese = (set(messages_of(line)) for line in row)
        assert chinese == english, row[1]


def test_figures_of_the_chinese_benchmarks_are_those_of_the_english() -> None:
    """A table that was measured anew is renewed in both."""
    number = re.compile(r"\d(?:[\d,.]*\d)?")
    english, chinese = (
        [
            set(number.findall(line.partition(" | ")[2]))
            for line in (ROOT / "docs" / name).read_text("utf-8").splitlines()
            if line.startswith("| ")
        ]
        for name in ("benchmarks.md", "benchmarks.zh.md")
    )
    assert sum(map(bool, chinese)) > 30
    assert [row for row in chinese if not any(row <= other for other in english)] == []


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_script_of_the_readme_is_the_example_that_is_run(page: str) -> None:
    """What is shown and what the next line starts are the same."""
    script = (ROOT / "examples" / "torch_sum.py").read_text("utf-8").partition('"""\n\n')[2]
    assert script in [b.body for b in blocks_of(ROOT / page) if b.language == "python"]


def test_pages_name_extras_for_the_clone() -> None:
    """On no index there is a paddock-train: README alone says where that name works."""
    named = [p.relative_to(ROOT) for p in PAGES if "paddock-train[" in p.read_text("utf-8")]
    assert [str(page) for page in named if not page.match("docs/decisions/*")] == [
        "README.md",
        "README.zh.md",
    ]


def test_the_ten_lines_are_those_of_the_example() -> None:
    """What the pages show is the script that is tested, to the letter."""
    script = TEN_LINES.read_text("utf-8").partition('"""\n\n')[2]
    pages = [
        ROOT / "docs/guide" / name for name in ("parameter-server.md", "parameter-server.zh.md")
    ]
    for page in pages:
        shown = [body for language, body in FENCE.findall(page.read_text("utf-8"))]
        assert script in shown, page.name
