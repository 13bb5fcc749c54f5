"""What the README and the guides tell people to type is typed here.

A command of a ```bash block is run as it stands, in a folder with stand-in scripts, and must end
with 0 (or with N where its comment says "exit code N"). A comment line changes that for the lines
below it: "two hosts", "three hosts" - only read, there are no such hosts here; "needs torch" -
run by the real suite, where the frameworks are; "on a cluster" - run by tests/cluster, here only
the files are looked for that they name.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from paddock.backends.flags import split_words
from paddock.cli.completion import every_command
from paddock.cli.family import given
from paddock.cli.jobs import COMMANDS as VERBS
from paddock.command_line import read_line
from paddock.jobfile.parse import parse

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "README.zh.md",
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    ROOT / "docs" / "failure.md",
]
LINKED = [
    *PAGES,
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    *sorted((ROOT / "docs" / "concepts").glob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
    ROOT / "CONTRIBUTING.md",
]
TEN_LINES = ROOT / "examples" / "ps" / "numpy_ten_lines.py"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")
FLAG = re.compile(r"`(--?[a-zA-Z][\w-]*)")
# Flags of other programs that the pages name.
OTHERS = {
    "--json", "--network", "--shm-size", "--ipc", "--device", "--name", "-v", "-e",
    "--run-path", "--virtual-local-rank", "--numa-binding", "--signals-to-handle", "--logs-specs",
    "--event-log-handler", "--duplicate-stdout-filters", "--duplicate-stderr-filters",
    "--validate", "--map-by", "-ppn",
}  # fmt: skip
# What a page may tell people to type on a cluster.
CLUSTER_PROGRAMS = {"kubectl", "helm", "make", "paddock"}
SLOT_TEXT = "click:0 1:17 2:3\nclick:1 1:18 2:4\nclick:0 1:19 2:4\n"
SCRIPT = "import os\nprint('rank', os.environ.get('RANK'), 'of', os.environ.get('WORLD_SIZE'))\n"
JOB = """\
{"apiVersion": "batch.paddlepaddle.org/v1", "kind": "PaddleJob", "metadata": {"name": "j"},
 "spec": {"worker": {"replicas": 2, "template": {"spec": {"containers": [
   {"name": "c", "image": "i", "command": ["python"], "args": ["train.py"]}]}}}}}
"""


@dataclass(frozen=True)
class Command:
    """One command line of a page. needs: modules of which one must be there; [] for none.

    on_cluster: it is for tests/cluster.
    """

    page: Path
    text: str
    env: dict[str, str]
    words: list[str]
    is_run: bool
    needs: list[str]
    code: int
    on_cluster: bool = False

    def __str__(self) -> str:
        return f"{self.page.name}: {self.text}"


def commands() -> list[Command]:
    """Every command of every page, in order."""
    return [command for page in PAGES for command in commands_of(page)]


def commands_of(page: Path) -> list[Command]:
    """The commands of one page's ```bash blocks."""
    found = []
    for language, body in FENCE.findall(page.read_text("utf-8")):
        if language != "bash":
            continue
        is_run, needs, on_cluster = True, [], False
        for line in body.replace("\\\n", " ").splitlines():
            if line.startswith("#"):
                on_cluster = line.startswith("# on a cluster")
                is_run = not on_cluster and not re.search(r"\b(two|three) hosts\b", line)
                names = re.search(r"\bneeds ([a-z0-9_, ]+)", line)
                needs = re.findall(r"\b(?!or\b)\w+", names[1]) if names else []
            elif line.strip():
                command = command_of(page, line, is_run, needs)
                found.append(replace(command, on_cluster=on_cluster))
    return found


def command_of(page: Path, line: str, is_run: bool, needs: list[str]) -> Command:
    """Take a line apart: variables, words, and the exit code its comment promises."""
    words = shlex.split(line, comments=True)
    env = {}
    while "=" in words[0]:
        name, _, text = words.pop(0).partition("=")
        env[name] = text
    code = re.search(r"# exit code (\d+)", line)
    text = line.partition(" # ")[0].strip()
    return Command(page, text, env, words, is_run, needs, int(code[1]) if code else 0)


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


ALL = commands()
RUN = once([c for c in ALL if c.is_run and not c.needs and c.words[0] == "paddock"])
READ = [c for c in ALL if not c.is_run and not c.on_cluster]
CLUSTER = [c for c in ALL if c.on_cluster]  # tests/cluster runs these
REAL = once([c for c in ALL if c.needs])


def test_the_pages_have_commands_of_every_kind() -> None:
    """Guards the reader of the pages: an expression that matches nothing would pass everything."""
    assert len(RUN) > 30
    assert len(READ) > 10
    assert len(CLUSTER) > 20
    assert REAL


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
        assert given(VERBS[verb], read_line(words, VERBS[verb].table)).jobs or verb == "list"
        return
    if verb == "submit":
        split = split_words(words)
        assert split.problems == []
        words = ["--nnodes", "3", *split.flags, *split.script]
        if not split.script:
            assert split.own["from"]
            return
    else:
        assert verb == "launch"
    parsed = parse(words, command.env, python="python")
    assert parsed.job.nnodes_max > 1


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


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """Links within the repository; those to other places are not followed."""
    for target, _ in LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_flag_in_the_text_exists(page: Path) -> None:
    """A flag that was renamed must not live on in prose."""
    names = {name for command in every_command() for f in command.table.flags for name in f.names}
    known = {n if n[1] != "-" else "--" + n[2:].replace("-", "_") for n in names}
    for flag in FLAG.findall(FENCE.sub("", page.read_text("utf-8"))):
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


def test_every_message_in_the_list_of_failures_is_one_of_ours() -> None:
    """The page quotes what people see; a message that was reworded must be reworded there, too."""
    page = (ROOT / "docs" / "failure.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    cells = [row[1] if len(row) == 4 else f"{row[1]} {row[2]}" for row in rows]
    spans = [span for cell in cells for span in re.findall(r"`([^`]*)`", cell)]
    messages = [span for span in spans if span.count(" ") > 1]
    source = literals()
    assert len(messages) > 60
    assert [message for message in messages if not is_ours(message, source)] == []


def test_both_readmes_tell_the_same() -> None:
    """The Chinese page has the same commands, links and length."""
    english, chinese = (commands_of(ROOT / name) for name in ("README.md", "README.zh.md"))
    assert [c.words for c in english] == [c.words for c in chinese]
    links = [
        {
            target.replace(".zh.md", ".md")  # some guides are there in Chinese, too
            for target, _ in LINK.findall((ROOT / name).read_text("utf-8"))
            if not target.startswith("README")
        }
        for name in ("README.md", "README.zh.md")
    ]
    assert links[0] == links[1]


def test_both_guides_of_kubernetes_tell_the_same() -> None:
    """Every English page has a Chinese one with the same commands and as many rows of tables."""
    for chinese in sorted((ROOT / "docs" / "guide").glob("*.zh.md")):
        english = chinese.with_name(chinese.name.replace(".zh.md", ".md"))
        pair = (english, chinese)
        words = [[c.words for c in commands_of(page)] for page in pair]
        if chinese.name.startswith("submit"):  # the first page only
            assert all(line in words[0] for line in words[1]), chinese.name
            continue
        assert words[0] == words[1], chinese.name
        texts = [page.read_text("utf-8").splitlines() for page in pair]
        for mark in ("|", "#", "```"):
            counts = [sum(line.startswith(mark) for line in lines) for lines in texts]
            assert counts[0] == counts[1], f"{chinese.name}: lines with {mark}"


def test_the_ten_lines_are_those_of_the_example() -> None:
    """What the pages show is the script that is tested, to the letter."""
    script = TEN_LINES.read_text("utf-8").partition('"""\n\n')[2]
    pages = [ROOT / "README.md", ROOT / "README.zh.md", ROOT / "docs/guide/parameter-server.md"]
    for page in pages:
        shown = [body for language, body in FENCE.findall(page.read_text("utf-8"))]
        assert script in shown, page.name
