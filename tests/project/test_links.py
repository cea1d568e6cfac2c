"""Links of the documents lead to files and headings that exist; the site lists every page."""

import re
from pathlib import Path

import pytest

from tests.project.documents import DOCS, FENCE, ROOT, name_of

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.rglob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(text: str) -> list[str]:
    """Find the links that stay in the repository, outside code blocks."""
    return [link for link in LINK.findall(FENCE.sub("", text)) if "://" not in link]


def anchors(text: str) -> set[str]:
    """Name the headings as the site and forges do."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def broken(page: Path, text: str) -> list[str]:
    """List the links of a page that lead nowhere."""
    found = []
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, page.read_text()) == []


def test_a_broken_link_is_found() -> None:
    page = DOCS / "start.md"
    text = "[a](guide/concepts.md#keys) [b](guide/concepts.md#no-such) [c](no_such.md) [d](#next)"
    assert broken(page, text) == ["guide/concepts.md#no-such", "no_such.md"]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name_of)
def test_a_page_links_within_the_site(page: Path) -> None:
    outside = [
        link
        for link in links(page.read_text())
        if not (page.parent / link.partition("#")[0]).resolve().is_relative_to(DOCS)
    ]
    assert outside == [], "the site holds docs/ only: name the file without a link"


def test_the_site_lists_every_page() -> None:
    _, _, nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    listed = re.findall(r"([\w/-]+\.md)$", nav, re.MULTILINE)
    pages = {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")}
    linked = {page for page in pages if page.endswith("/tables.md")}  # by reports/README.md
    notebooks = {f"notebooks/{path.stem}.md" for path in ROOT.glob("examples/notebooks/*.ipynb")}
    assert sorted(listed) == sorted(pages - linked | notebooks)
