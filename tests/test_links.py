"""Every link of every page leads to a file that is there, and to an anchor that it has.

Links to other places are not followed. The site, whose pages docs/site_pages.py makes from these,
checks the links that it has made (make docs).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import site_pages
from site_pages import ROOT

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("docs", "examples", "deploy", ".")
    for path in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
)


def broken(page: str, text: str) -> list[str]:
    """The links of a page that lead nowhere, one line each."""
    found = []
    for link in site_pages.LINK.finditer(site_pages.CODE.sub("", text)):
        target = ROOT / site_pages.target_of(page, link["file"])
        if not target.exists():
            found.append(f"{page}: there is no {link['file']}")
        elif link["anchor"] and target.suffix == ".md":
            names = site_pages.anchors(target.read_text("utf-8"))
            if link["anchor"][1:] not in names:
                found.append(f"{page}: {link['file'] or page} has no {link['anchor']}")
    return found


def test_every_link_leads_somewhere() -> None:
    """Files, folders and anchors, in both languages."""
    assert len(PAGES) > 60
    assert [line for page in PAGES for line in broken(page, (ROOT / page).read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("[a](nowhere.md)", "no nowhere.md"),
        ("[a](../README.md#nothing)", "no #nothing"),
        ("[a](#nothing)", "no #nothing"),
        ("`[a](nowhere.md)` [b](https://example.org/x.md#y)", ""),
    ],
)
def test_each_broken_link_is_found(link: str, complaint: str) -> None:
    """A check that cannot fail would be worse than none."""
    found = broken("docs/architecture.md", f"# A\n\n{link}\n")
    assert [complaint in line for line in found] == ([True] if complaint else [])


def test_a_page_of_the_site_has_links_of_the_site() -> None:
    """Out of docs/ to pages that show the file; to the page, whatever its language; not in code.

    A Chinese sentence that the page breaks into lines is whole: a browser would show a space.
    """
    text = (
        "# 一\n\n[English](launch.md) | 中文\n\n[a](../../examples/hello.py) [b](submit.zh.md#x)"
        " [c](../../deploy/images) [d](../../README.md) `[e](f.zh.md)`\n\n- 上，\n  下\n- 下\n"
    )
    assert site_pages.page("docs/guide/none.zh.md", text) == (
        "# 一\n\n[a](../examples/hello_py.md) [b](submit.md#x) c [d](../index.md) `[e](f.zh.md)`"
        "\n\n- 上，下\n- 下\n"
    )


def test_chinese_headings_have_the_english_anchors_too() -> None:
    """A link to a heading is right in either language; all are on top where the headings differ."""
    english = "# One\n\n## Two words\n\n```bash\n# no heading\n```\n"
    assert site_pages.with_anchors("# 一\n\n## 二\n\n```\n# 无\n```\n", english) == (
        '# 一 <a id="one"></a>\n\n## 二 <a id="two-words"></a>\n\n```\n# 无\n```\n'
    )
    assert site_pages.with_anchors("# 一\n\n二\n", english) == (
        '# 一\n\n<a id="two-words"></a>\n\n二\n'
    )


def test_the_site_shows_what_its_pages_link_to(tmp_path: Path) -> None:
    """The whole of it is made: pages, the files they name, no tool of its own."""
    assert site_pages.main([str(tmp_path / "docs")]) == 0
    made = {path.relative_to(tmp_path / "docs").as_posix() for path in tmp_path.rglob("*.*")}
    assert {"index.md", "CONTRIBUTING.md", "examples/checkpoint_on_sigterm_py.md"} <= made
    assert not any(name.endswith(".py") for name in made)
    assert "(0001-light-values.md)" in (tmp_path / "docs/decisions/all.md").read_text("utf-8")


def test_the_tab_of_the_project_opens_no_decision() -> None:
    """An index page of a section is what its tab opens, and it has no line in the sidebar."""
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    project = nav.partition("  - Project:\n")[2].splitlines()
    assert [line for line in project if "README.md" in line or "index.md" in line] == []
    guides = nav.partition("  - Guides:\n")[2].partition("\n  - Concepts:")[0]
    assert "failure.md" in guides
