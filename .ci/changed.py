"""Print the folders of tests that belong to what changed since the last commit.

`make quick` runs them: `core/rl/losses.py` leads to `tests/core/rl`, `src/triglot/sweep/plan.py` to
`tests/sweep`. It needs the standard library only.
"""

import subprocess
from pathlib import Path


def changed_files() -> list[Path]:
    """List the files that differ from the last commit, new ones among them."""
    commands = (("diff", "--name-only", "HEAD"), ("ls-files", "--others", "--exclude-standard"))
    printed = (
        subprocess.run(("git", *words), check=True, capture_output=True, text=True).stdout
        for words in commands
    )
    return [Path(line) for text in printed for line in text.splitlines()]


def tests_of(file: Path, root: Path) -> Path | None:
    """Find the nearest folder of tests that mirrors the folder of a file; None if there is none."""
    parts = file.parent.parts
    parts = parts[2:] if parts[:2] == ("src", "triglot") else parts
    if parts[:1] != ("tests",):
        parts = ("tests", *parts)
    folders = (Path(*parts[:length]) for length in range(len(parts), 1, -1))
    return next((folder for folder in folders if (root / folder).is_dir()), None)


def main() -> None:
    """Print each folder once, without those inside of others."""
    found = {tests_of(file, Path()) for file in changed_files()} - {None}
    folders = sorted(folder for folder in found if folder is not None)
    print(*(one for one in folders if not any(other in one.parents for other in folders)))


if __name__ == "__main__":
    main()
