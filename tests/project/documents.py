"""Read the documents: their pages, commands, code and links."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# The reports' pages are written by docs/reports/collect.py.
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if "reports" not in p.parts)]
FENCE = re.compile(r"^```(.*?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# A command, also one with variables of the environment or pinned to cores.
TRIGLOT = re.compile(r"(?:\w+=\S+ |taskset -c \S+ )*triglot (.*)")
FILE = re.compile(r"`([\w/]+\.py)`:\n\n$")


def name_of(page: Path) -> str:
    """Name a page in a test's id."""
    return page.relative_to(ROOT).as_posix()


def files(page: Path) -> dict[str, str]:
    """Give the Python files of a page by their path, which stands before the block."""
    text, found = page.read_text(), {}
    for block in FENCE.finditer(text):
        named = FILE.search(text[: block.start()])
        if named and block[1] == "python":
            found[named[1]] = block[2]
    return found


def programs(page: Path) -> list[str]:
    """Give the Python blocks of a page that are not files."""
    text = page.read_text()
    return [
        found[2]
        for found in FENCE.finditer(text)
        if found[1] == "python" and not FILE.search(text[: found.start()])
    ]


# The files of all pages, as a reader has them in one folder; the toy library is a package.
FILES = {
    Path(name).name: text
    for page in PAGES
    for name, text in files(page).items()
    if not name.startswith("triglot_toy/")
}


def shell_blocks(page: Path) -> list[list[str]]:
    """Give the commands of a page: a block without a language is for the shell."""
    blocks = [found[2] for found in FENCE.finditer(page.read_text()) if not found[1]]
    joined = [block.replace("\\\n", " ").splitlines() for block in blocks]
    return [[line for line in block if line.strip()] for block in joined]


def commands(page: Path, *names: str) -> list[list[str]]:
    """Split the `triglot` commands of a page into words, in order.

    Args:
      page: a Markdown file.
      names: only these commands; none gives all.
    """
    found = [TRIGLOT.match(line) for block in shell_blocks(page) for line in block]
    split = [shlex.split(line[1], comments=True) for line in found if line]
    return [words for words in split if not names or words[0] in names]
