"""Run the command line: `python -m triglot`."""

from .experiments.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
