"""Copy the small files of comparisons here, and list them with their commands in README.md.

python docs/reports/collect.py runs/cartpole-ppo runs/pendulum-sac
"""

import json
import shlex
import shutil
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
FILES = ("comparison.json", "curves.png", "tables.md")
HEAD = """# Reports of comparisons

Each folder holds the curves, the tables and the numbers of one `triglot compare`; its command has
every option spelled out, so that later defaults do not change it. [Findings](../findings.md) sums
them up. `python docs/reports/collect.py RUN ...` copies the files of runs and writes this page.
"""


def main(folders: list[Path]) -> None:
    """Copy the files of each run folder, and write the page over all that are here."""
    for folder in folders:
        target = HERE / folder.name
        target.mkdir(exist_ok=True)
        for name in FILES:
            shutil.copyfile(folder / name, target / name)
    found = sorted(path for path in HERE.iterdir() if (path / FILES[0]).exists())
    (HERE / "README.md").write_text("\n".join([HEAD, *map(section, found)]))


def section(folder: Path) -> str:
    """Format one report."""
    result = json.loads((folder / FILES[0]).read_text())
    words = shlex.split(result["full_command"])
    command = textwrap.wrap(shlex.join(words), 96, break_long_words=False, break_on_hyphens=False)
    verdict = result["verdict"]
    text = textwrap.fill(f"**{verdict['level'].capitalize()}.** {verdict['sentence']}", 100)
    shown = " \\\n    ".join(command)
    title = f"{result['algorithm']} on {result['env']}"
    return (
        f"## {title}\n\n[Tables]({folder.name}/tables.md), "
        f"[numbers]({folder.name}/comparison.json)\n\n"
        f"```\n{shown}\n```\n\n{text}\n\n![Learning curves]({folder.name}/curves.png)\n"
    )


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
