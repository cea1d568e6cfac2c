"""A whole process of one framework, from Python's start to the end of a short training.

python -m benchmarks.peers.cold rejax cold-start 51200 linen
"""

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a process imports no more than its framework does
    from .contender import Contender
    from .row import Row

OUT = "{out}"
TRIGLOT = "triglot"
FLOOR = "plain"  # a hand-written program, which nothing is expected to beat


def in_processes(contender: "Contender", command: Sequence[str]) -> "Contender":
    """Let each run of a framework be a process; `OUT` in its command is a temporary folder."""

    def run(index: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            words = [word.replace(OUT, folder) for word in command]
            subprocess.run(words, check=True, capture_output=True)

    def compile(keys: Any) -> tuple[Any, float]:
        run(0)  # a warmup
        return run, 0.0

    return replace(contender, compile=compile)


def python_command(
    name: str, row_name: str, total_steps: int, backend: str, folder: Path | None
) -> list[str]:
    """Write the command of a training in Python; `folder` is that of the peer's repository."""
    words = [name, row_name, str(total_steps), backend, *([] if folder is None else [str(folder)])]
    return [sys.executable, "-m", "benchmarks.peers.cold", *words]


def train_command(row: "Row", total_steps: int, backend: str) -> list[str]:
    """Write the `triglot train` of a row, without an evaluation; its folder is in `OUT`."""
    words = [sys.executable, "-m", "triglot", "train", row.algorithm]
    words += [f"{row.suites[0]}:{row.env_id}", "--backend", backend, "--no-preset"]
    words += ["--total-steps", str(total_steps), "--eval-episodes", "0"]
    words += ["--no-compilation-cache", "--out", f"{OUT}/run"]
    for name, value in {**row.config, **row.hyper}.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{option}", *map(str, values)]
    return words


def train(
    name: str,
    row_name: str,
    total_steps: int,
    backend: str,
    folder: Path | None,
    lap: Callable[[str], None] = lambda stage: None,
) -> None:
    """Import a framework and train with it, as its user does.

    Args:
      name: triglot or a peer.
      row_name: the setting, a row of `benchmarks.peers`.
      total_steps: environment steps.
      backend: triglot's network library.
      folder: that of the peer's repository.
      lap: called after each stage, with what it did.
    """
    import jax

    from .rows import ROWS

    row = ROWS[row_name]
    lap("import the settings")
    if name == TRIGLOT:
        import triglot

        env = triglot.make_env(f"{row.suites[0]}:{row.env_id}")
        lap("make the environment")
        agent = triglot.make_agent(
            row.algorithm, env, backend=backend, config=row.config, hyper=row.hyper
        )
        lap("make the agent")
        triglot.train(agent, env, key=jax.random.key(0), total_steps=total_steps)
    else:
        peer = importlib.import_module(f".{name.lower()}", __package__)
        lap("import the framework")
        contender = peer.contender(row, total_steps, folder)
        lap("make the agent")
        compiled, _ = contender.compile(jax.random.split(jax.random.key(0), (1, 1)))
        jax.block_until_ready(compiled(0))
    lap("initialize, trace, compile and train")


def main(
    name: str, row_name: str, total_steps: int, backend: str, folder: str | None = None
) -> None:
    """Train in this process, without a compilation cache."""
    import jax

    jax.config.update("jax_enable_compilation_cache", False)
    train(name, row_name, total_steps, backend, None if folder is None else Path(folder))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
