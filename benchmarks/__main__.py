"""List the benchmarks."""

import ast
from pathlib import Path

NAMES = (
    "peers",
    "gpu",
    "start",
    "growth",
    "account",
    "seams",
    "versions",
    "time_to_return",
    "devices",
    "fingerprints",
    "programs",
    "matrix",
    "published",
    "suites",
    "implementations",
)


def main() -> None:
    """Print the first sentence of each benchmark."""
    print("`python -m benchmarks.NAME`, with --help for its options, is one of:\n")
    for name in NAMES:
        path = Path(__file__).parent / name
        file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        text = ast.get_docstring(ast.parse(file.read_text())) or ""
        print(f"  {name:<16}{text.partition(chr(10))[0]}")


if __name__ == "__main__":
    main()
