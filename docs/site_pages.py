"""Makes the pages of the site from the repository's: ``python docs/site_pages.py build/docs``.

The pages are written for a code host's Markdown view. What a site needs otherwise is done here, so
that its builder needs no plugin of ours, and no address of the repository:

- A link that leaves docs/ (``../../examples/x.py``) leads to a page that shows the file; one to a
  folder without README is text.
- A link to ``x.zh.md`` becomes ``x.md``: the builder takes the page in the reader's language. So
  that its anchors are found in either, a Chinese heading has the anchor of its English one, too.
- A Chinese sentence is not broken into lines: a browser shows each break as a space.
- The line that leads to the same page in the other language goes: the site has a menu for it.
- The decisions get a page that lists them. It is no index: that would be what its tab opens.
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import sys
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parent.parent
# Pages of the repository that are part of the site, whether a page links to them or not.
OURS = ("CONTRIBUTING.md", "CHANGELOG.md")
# Files of docs/ that make pages.
NOT_PAGES = (".pyc", "/chinese.txt")
# The home page says what the README says.
HOMES = {"README.md": "docs/index.md", "README.zh.md": "docs/index.zh.md"}
LANGUAGES = {
    ".py": "python", ".yaml": "yaml", ".json": "json", ".ipynb": "json", ".toml": "toml",
    ".sh": "bash",
}  # fmt: skip
FENCE = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(^`{3,}[^`\n]*\n.*?^`{3,}$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?!\w+:)(?P<file>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
# A line that ends in Chinese and goes on in Chinese: a browser would show a space.
CHINESE = r"[\u3000-\u9fff\uff00-\uffef]"
BROKEN_CHINESE = re.compile(rf"(?<={CHINESE})\n *(?={CHINESE})")
HEADING = re.compile(r"^(#{1,6}) +(.*?) *$", re.MULTILINE)
OTHER_LANGUAGE = re.compile(
    r"^(English \| )?\[(中文|English)\]\([^)]*\)( \| 中文)?\n\n"
    r"|\s*(English: |中文：)\[[^\]]*\]\([^)]*\)。?",
    re.MULTILINE,
)


def main(argv: list[str]) -> int:
    """Make the pages of the whole site in a directory."""
    (name,) = argv
    target = Path(name)
    shutil.rmtree(target, ignore_errors=True)
    inside = [path for path in sorted((ROOT / "docs").rglob("*")) if path.is_file()]
    waiting = [*OURS, *(str(path.relative_to(ROOT)) for path in inside)]
    if not (ROOT / "docs/index.md").exists():
        waiting += HOMES
    made = set()
    while waiting:
        path = waiting.pop()
        is_tool = path.startswith("docs/") and path.endswith(".py")
        if path in made or is_tool or path.endswith(NOT_PAGES):
            continue
        made.add(path)
        place = target / site_path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            text = (ROOT / path).read_text("utf-8")
            waiting += shown(path, text)
            place.write_text(page(path, text), "utf-8")
        elif path.startswith("docs/"):
            shutil.copyfile(ROOT / path, place)
        else:
            place.write_text(listing(path, (ROOT / path).read_text("utf-8")), "utf-8")
    (target / "decisions/all.md").write_text(decisions(), "utf-8")
    return 0


def page(path: str, text: str) -> str:
    """A page of the repository as the site's builder wants it."""
    here = posixpath.dirname(site_path(path)) or "."
    english = ROOT / path.replace(".zh.md", ".md")
    if path.endswith(".zh.md") and english.exists():
        text = with_anchors(text, english.read_text("utf-8"))
    text = outside_code(BROKEN_CHINESE, lambda _break: "", text)

    def led(link: re.Match[str]) -> str:
        target = target_of(path, link["file"])
        if not link["file"] or not target:
            return link[0]
        if (ROOT / target).is_dir():
            return link["text"]
        to = posixpath.relpath(site_path(target).replace(".zh.md", ".md"), here)
        return f"[{link['text']}]({to}{link['anchor'] or ''})"

    return outside_code(LINK, led, OTHER_LANGUAGE.sub("", text))


def outside_code(what: re.Pattern[str], by: Callable[[re.Match[str]], str], text: str) -> str:
    """The text with a pattern replaced, but in code."""
    pieces: list[str] = []

    def keep(code: re.Match[str]) -> str:
        # MkDocs needs no backslash before a "|" of code in a table, code hosts do.
        pieces.append(code[0] if "\n" in code[0] else code[0].replace("\\|", "|"))
        return f"\0{len(pieces) - 1}\0"

    text = what.sub(by, CODE.sub(keep, text))
    return re.sub(r"\0(\d+)\0", lambda at: pieces[int(at[1])], text)


def with_anchors(text: str, english: str) -> str:
    """A Chinese page whose headings have the anchors of the English page's, too.

    Where the two have other headings, all those anchors are at the top.
    """
    names = anchors(english)
    marks = [f'<a id="{name}"></a>' for name in names]
    levels = [[mark for mark, _ in headings(page)] for page in (text, english)]
    if levels[0] != levels[1]:
        first, _, rest = text.partition("\n")
        return f"{first}\n\n{''.join(marks[1:])}\n{rest}"
    rest = iter(marks)
    return outside_code(HEADING, lambda head: f"{head[1]} {head[2]} {next(rest)}", text)


def headings(text: str) -> list[tuple[str, str]]:
    """The headings of a page: their hashes, and their text."""
    return HEADING.findall(FENCE.sub("", text))


def anchors(text: str) -> list[str]:
    """The anchors of a page's headings, as code hosts make them."""
    found: list[str] = []
    for _, words in headings(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words)
        name = re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")
        found.append(name if name not in found else f"{name}-{found.count(name)}")
    return found


def listing(path: str, text: str) -> str:
    """A page that shows a file."""
    language = LANGUAGES.get(posixpath.splitext(path)[1], "text")
    return f"# {path}\n\n````{language}\n{text}````\n"


def decisions() -> str:
    """The page that lists the decisions, newest first."""
    lines = ["# Decisions\n", "Why things are as they are, written when it was decided.\n"]
    for path in sorted((ROOT / "docs/decisions").glob("0*.md"), reverse=True):
        title = path.read_text("utf-8").partition("\n")[0].lstrip("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def shown(path: str, text: str) -> list[str]:
    """The files outside docs/ that a page links to, and the site shows for that."""
    targets = {target_of(path, link["file"]) for link in LINK.finditer(CODE.sub("", text))}
    return sorted(t for t in targets if t and not is_inside(t) and (ROOT / t).is_file())


def target_of(page: str, link: str) -> str:
    """The file of the repository that a link leads to (a folder's README); "" for none."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link)) if link else page
    readme = f"{path}/README.md"
    return "" if path.startswith("..") else readme if (ROOT / readme).is_file() else path


def is_inside(path: str) -> bool:
    """Whether a file is in docs/, or is a README that the home page stands for."""
    return HOMES.get(path, path).startswith("docs/")


def site_path(path: str) -> str:
    """Where the site shows a file of the repository."""
    path = HOMES.get(path, path)
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    stem, kind = os.path.splitext(path)
    return path if kind == ".md" else f"{stem}_{kind[1:]}.md"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
