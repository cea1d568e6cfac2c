"""Build the notebook of the page of recipes, and run it: python -m docs.site.recipes."""

import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "python.md"
NOTEBOOK = ROOT / "examples" / "notebooks" / "6_python.ipynb"
CELL = re.compile(r"(?:`([\w/]+\.py)`:\n\n)?^```python\n(.*?)^```$\n*", re.DOTALL | re.MULTILINE)
INSTALL = """\
# In Colab, or wherever triglot is not installed: the address of its repository.
repository = "{site}"
if repository:
    %pip install --quiet "triglot[all,torch] @ git+{{repository}}\""""
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook() -> Any:
    """Convert the page: its prose and its cells, without outputs."""
    text = PAGE.read_text()
    site = re.findall(r"^repo_url: (\S+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    title, _, text = text.partition("\n## ")
    install = new_code_cell(INSTALL.format(site="".join(site)), metadata={"tags": ["install"]})
    cells = [new_markdown_cell(_prose(title)), install]
    end, text = 0, f"## {text}"
    for found in CELL.finditer(text):
        if prose := _prose(text[end : found.start()]):
            cells.append(new_markdown_cell(prose))
        source = f"%%writefile {found[1]}\n{found[2]}" if found[1] else found[2]
        cells.append(new_code_cell(source.strip()))
        end = found.end()
    cells.append(new_markdown_cell(_prose(text[end:])))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def _prose(text: str) -> str:
    """Point the links of the page from the folder of the notebook."""
    text = re.sub(r"\nThey are also a notebook, [^\n]*", "", text)
    return re.sub(r"\]\((?!http|\.\.)([^)]+)\)", r"](../../docs/guide/\1)", text).strip()


def main() -> None:
    """Run the notebook in an empty folder, and write it with its outputs."""
    from nbclient import NotebookClient

    made = notebook()
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(made, timeout=900, kernel_name="python3", resources=resources).execute()
    for cell in made.cells:
        if cell.cell_type == "code":
            cell.metadata.pop("execution", None)
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    nbformat.write(made, NOTEBOOK)
    print(f"written: {NOTEBOOK}")


if __name__ == "__main__":
    main()
