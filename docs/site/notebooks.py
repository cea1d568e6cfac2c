"""A hook of MkDocs: the notebooks become pages, with the outputs that they are committed with."""

from pathlib import Path
from urllib.parse import urlparse

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

NOTEBOOKS = "examples/notebooks"
COLAB = "https://colab.research.google.com/github"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, its figures, and the notebook itself."""
    root = Path(config.config_file_path).parent
    for path in sorted((root / NOTEBOOKS).glob("*.ipynb")):
        source, figures = convert(path)
        title, _, rest = source.lstrip().partition("\n")
        pages = {
            f"notebooks/{path.stem}.md": f"{title}\n\n{links(path, config.repo_url)}\n{rest}",
            f"notebooks/{path.name}": path.read_bytes(),
            **{f"notebooks/{name}": data for name, data in figures.items()},
        }
        for name, content in pages.items():
            files.append(File.generated(config, name, content=content))
    return files


def convert(path: Path) -> tuple[str, dict[str, bytes]]:
    """Convert a notebook to Markdown, and return it with its figures by relative path."""
    resources = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
    notebook = nbformat.read(path, as_version=4)
    source, found = MarkdownExporter().from_notebook_node(notebook, resources)
    return source.replace("](../../docs/", "](../"), found["outputs"]


def links(path: Path, repository: str | None) -> str:
    """Link to the notebook's file and, if mkdocs.yml names a repository on GitHub, to Colab."""
    button = "{ .md-button }"
    found = f"[Download the notebook]({path.name}){button}"
    address = urlparse(repository or "")
    if address.netloc == "github.com":
        place = f"{address.path.strip('/')}/blob/main/{NOTEBOOKS}/{path.name}"
        found += f" [Open in Colab]({COLAB}/{place}){button}"
    return found
