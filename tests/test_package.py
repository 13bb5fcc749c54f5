"""What is published: a wheel and an sdist as the package index gets them, and their version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paddock import __version__

if TYPE_CHECKING:
    from email.message import Message

ROOT = Path(__file__).resolve().parent.parent
BUILDER = "hatchling and hatch-fancy-pypi-readme, of the extra dev, are not here"
LINK = re.compile(r'\]\(([^)\s]+)|\b(?:src|srcset|href)="([^"]+)"')
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
RELEASED = re.compile(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the tree is built into."""
    pytest.importorskip("hatchling", reason=BUILDER)
    pytest.importorskip("hatch_fancy_pypi_readme", reason=BUILDER)
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "-t", "sdist", "-t", "wheel")
    return folder


def build(tree: Path, folder: Path, *targets: str) -> None:
    """As `make dist` does."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *targets]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def only(folder: Path, pattern: str) -> Path:
    """The one file there of that name."""
    (found,) = folder.glob(pattern)
    return found


def about(wheel: Path) -> Message:
    """Its METADATA: fields, and the long description as payload."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_the_distribution_is_paddock_train_and_holds_paddock_alone(built: Path) -> None:
    """The import and the command stay paddock; the files are those of src/, all and no others."""
    wheel = only(built, f"paddock_train-{__version__}-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (entry,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        commands = archive.read(entry).decode()
    source = ROOT / "src"
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert names == {name for name in files if "__pycache__" not in name}
    assert "paddock/py.typed" in names
    assert commands.split() == ["[console_scripts]", "paddock", "=", "paddock.cli.main:main"]
    assert about(wheel)["Name"] == "paddock-train"


def test_the_page_on_the_index_has_no_link_that_leads_nowhere(built: Path) -> None:
    """No address of the project is public: relative links become their text, and none is named."""
    metadata = about(only(built, "*.whl"))
    page = metadata.get_payload(decode=True)
    assert isinstance(page, bytes)
    readme = (ROOT / "README.md").read_text("utf-8")
    links = [one or two for one, two in LINK.findall(FENCE.sub("", page.decode()))]
    assert [link for link in links if not re.match(r"https://|#", link)] == []
    assert LINK.search(FENCE.sub("", readme))
    assert "English | 中文" in page.decode()
    assert FENCE.findall(page.decode()) == FENCE.findall(readme)  # code keeps its brackets
    assert metadata.get_all("Project-URL") is None


def test_an_sdist_gives_the_same_wheel_as_the_tree(built: Path, tmp_path: Path) -> None:
    """It has all that is needed to build, test and document; and a build is reproducible."""
    subprocess.run(["tar", "-xzf", only(built, "*.tar.gz"), "-C", tmp_path], check=True)
    tree = tmp_path / f"paddock_train-{__version__}"
    needed = ("tests", "docs", "deploy", "examples", "benchmarks", "Makefile", ".ci/run", "LICENSE")
    assert [name for name in needed if not (tree / name).exists()] == []
    build(tree, tmp_path, "-t", "wheel")
    wheels = [only(folder, "*.whl") for folder in (built, tmp_path)]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


def faults(changelog: str, version: str, tags: list[str]) -> list[str]:
    """What is wrong with the rule of CONTRIBUTING.md, "Releases"; tags: those of this commit."""
    head, *older = HEADING.findall(changelog)
    found = [RELEASED.fullmatch(heading) for heading in (head, *older)]
    said = [f"## {text}" for text, match in zip(older, found[1:], strict=True) if not match]
    numbers = [tuple(map(int, match[1].split("."))) for match in found if match]
    if numbers != sorted(set(numbers), reverse=True):
        said.append("not newest first")
    now = tuple(map(int, version.split(".")))
    if head == "[Unreleased]":
        said += ["version is released"] if numbers and now <= numbers[0] else []
        said += [f"tag {tag} before its entry" for tag in tags]
    elif not found[0] or found[0][1] != version:
        said.append(f"## {head}")
    return said + [f"tag {tag}" for tag in tags if tag != f"v{version}"]


ENTRY = "## [0.2.0] - 2026-11-23\n"


@pytest.mark.parametrize(
    ("changelog", "version", "tags", "said"),
    [
        ("## [Unreleased]\n" + ENTRY, "0.3.0", [], []),
        (ENTRY, "0.2.0", ["v0.2.0"], []),
        ("## [Unreleased]\n" + ENTRY, "0.2.0", [], ["version is released"]),
        (ENTRY, "0.3.0", [], ["## [0.2.0] - 2026-11-23"]),
        ("## 0.2.0\n", "0.2.0", [], ["## 0.2.0"]),
        (ENTRY + "## [0.10.0] - 2026-12-01\n", "0.2.0", [], ["not newest first"]),
        (ENTRY, "0.2.0", ["0.2.0"], ["tag 0.2.0"]),
        ("## [Unreleased]\n", "0.2.0", ["v0.2.0"], ["tag v0.2.0 before its entry"]),
    ],
)
def test_a_version_its_entry_and_its_tag_that_disagree_are_told(
    changelog: str, version: str, tags: list[str], said: list[str]
) -> None:
    """Each way to break the rule has its words."""
    assert faults(changelog, version, tags) == said


def test_version_changelog_and_tag_agree() -> None:
    """__version__ is the release being made, CHANGELOG.md has it, a tag of this commit names it."""
    tags: list[str] = []
    if (ROOT / ".git").exists():  # an sdist has none
        command = ["git", "tag", "--points-at", "HEAD", "--list", "*[0-9].[0-9]*"]
        env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(ROOT.parent)}
        tags = subprocess.check_output(command, cwd=ROOT, env=env, text=True).split()
    assert faults((ROOT / "CHANGELOG.md").read_text("utf-8"), __version__, tags) == []
