"""Build the source archive and the wheel with a page whose links work on a package index.

    python .ci/release.py [--out dist]

An index shows README.md without the repository, so its relative links and pictures would be broken.
The build runs in a copy of the checkout, in which they lead to the tag of the version, and in which
`pyproject.toml` has the project's URLs. The address is `repo_url` in `mkdocs.yml`.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")
NOT_COPIED = (".git", ".venv", "build", "dist", "runs", "site", "*.egg-info", "__pycache__")


def absolute_links(text: str, address: str, tag: str) -> str:
    """Replace relative links of a Markdown page by those into the repository.

    >>> absolute_links("[a](docs/a.md#b) ![c](c.gif)", "https://x.org/y", "v1")
    '[a](https://x.org/y/blob/v1/docs/a.md#b) ![c](https://x.org/y/raw/v1/c.gif)'
    """

    def link(found: re.Match[str]) -> str:
        mark, title, path = found.groups()
        return f"{mark}[{title}]({address}/{'raw' if mark else 'blob'}/{tag}/{path})"

    return LINK.sub(link, text)


def project_urls(address: str) -> str:
    """Write the table of `pyproject.toml` with the project's addresses."""
    pages = {
        "Repository": "", "Issues": "/issues", "Changelog": "/blob/main/CHANGELOG.md",
        "Documentation": "/tree/main/docs",
    }  # fmt: skip
    return "\n[project.urls]\n" + "".join(f'{n} = "{address}{p}"\n' for n, p in pages.items())


def address_of(root: Path) -> str:
    """Read `repo_url`.

    Raises:
      SystemExit: if it is not set.
    """
    found = re.findall(r"^repo_url: (\S+)", (root / "mkdocs.yml").read_text(), re.MULTILINE)
    if not found:
        sys.exit("mkdocs.yml has no repo_url: set the repository's address there, then build.")
    return found[0].rstrip("/")


def prepare(root: Path, folder: Path) -> None:
    """Copy a checkout into a folder that does not exist, with absolute links and the URLs."""
    address = address_of(root)
    shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    text = (root / "src" / "triglot" / "__init__.py").read_text()
    version = re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE)[0]
    readme, project = folder / "README.md", folder / "pyproject.toml"
    readme.write_text(absolute_links(readme.read_text(), address, f"v{version}"))
    project.write_text(project.read_text() + project_urls(address))


def main() -> None:
    """Prepare a copy and build it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("dist"), help="where the archives go")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "triglot"
        prepare(ROOT, copy)
        built = [sys.executable, "-m", "build", "--outdir", options.out.absolute(), copy]
        sys.exit(subprocess.call(built))


if __name__ == "__main__":
    main()
