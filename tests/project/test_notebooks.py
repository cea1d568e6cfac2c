"""The notebooks: committed with their outputs, and run here on a small budget."""

import ast
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
# New values for each notebook's cell of parameters.
SMALL = {
    "1_maze_equinox": {"total_steps": 4096, "num_mazes": 8},
    "2_ant_haiku": {"total_steps": 4096, "sac_steps": 1500, "num_episodes": 2},
    "3_fused_pipeline": {
        "num_updates": 5,
        "learning_rates": [1e-3, 1e-2],
        "num_seeds": 2,
        "host_steps": 1024,
    },
    "4_dqn_haiku": {
        "total_steps": 600,
        "equality_steps": 600,
        "num_seeds": 2,
        "num_episodes": 2,
    },
    "5_tabular": {"python_steps": 20, "total_steps": 2048, "num_agents": 2},
    "6_python": {},  # its page runs in tests/project/test_recipes.py, with fewer steps
}
IN_CI = {"5_tabular"}
MAX_BYTES = 300_000

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def shrink(notebook: Any, budget: dict[str, Any]) -> None:
    """Override the values of the cell tagged `parameters`."""
    if not budget:
        return
    tagged = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", ())]
    assert len(tagged) == 1
    (cell,) = tagged
    nodes = ast.walk(ast.parse(cell.source))
    there = {node.id for node in nodes if isinstance(node, ast.Name)}
    assert budget.keys() <= there
    again = (f"{name} = {value!r}" for name, value in budget.items())
    cell.source = "\n".join([cell.source, *again])


def test_every_notebook_has_a_small_budget() -> None:
    assert {path.stem for path in NOTEBOOKS} == SMALL.keys()


@every_notebook
def test_it_is_committed_as_it_ran(path: Path) -> None:
    notebook, shown = read(path), ""
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    for output in outputs(notebook):
        assert output.output_type != "error", output
        assert output.get("name") != "stderr", output
        shown += str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", ""))
    for machine in ("/home/", "/root/", "/tmp/", "/usr/", "\\Users\\"):
        assert machine not in shown
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    assert path.stat().st_size < MAX_BYTES


@every_notebook
def test_its_second_cell_installs_from_the_projects_repository(path: Path) -> None:
    cell = read(path).cells[1]
    assert cell.metadata.tags == ["install"]
    site = re.findall(r"^repo_url: (\S+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert f'repository = "{"".join(site)}"\n' in cell.source
    (extras,) = re.findall(r'"triglot(?:\[([\w,]+)\])? @ git\+\{repository\}"', cell.source)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(filter(None, extras.split(","))) <= declared["optional-dependencies"].keys()


@pytest.mark.packaging
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.stem in IN_CI else pytest.mark.slow, id=path.stem)
        for path in NOTEBOOKS
    ],
)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))  # ignore the user's settings
    notebook = read(path)
    shrink(notebook, SMALL[path.stem])
    folder = {"metadata": {"path": str(tmp_path)}}  # where figures are written
    # An exception in a cell fails the test.
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=folder).execute()
