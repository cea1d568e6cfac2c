"""The README's Python runs as it stands, but for fewer steps."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_the_readme_runs(index: int, capsys: pytest.CaptureFixture[str]) -> None:
    block, cuts = re.subn(r"total_steps=[\d_]+", "total_steps=1024", BLOCKS[index])
    assert cuts == 1
    exec(compile(block, f"README block {index}", "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out


def test_the_example_is_the_readmes() -> None:
    example = (ROOT / "examples" / "swap_the_library.py").read_text()
    assert example.partition("\n\n")[2] == BLOCKS[0]
