"""A whole process of one framework, from Python's start to the end of a short training.

python -m benchmarks.peers.cold rejax cold-start 51200 linen
"""

import importlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a process imports no more than its framework does
    from .contender import Contender
    from .row import Row


OUT = "{out}"


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


def main(
    name: str, row_name: str, total_steps: int, backend: str, folder: str | None = None
) -> None:
    """Import, compile and train, as a user of the framework does."""
    import jax

    from .rows import ROWS

    jax.config.update("jax_enable_compilation_cache", False)
    row = ROWS[row_name]
    if name == "triglot":
        import triglot

        env = triglot.make_env(f"{row.suites[0]}:{row.env_id}")
        agent = triglot.make_agent(
            row.algorithm, env, backend=backend, config=row.config, hyper=row.hyper
        )
        triglot.train(agent, env, key=jax.random.key(0), total_steps=total_steps)
        return
    peer = importlib.import_module(f".{name.lower()}", __package__)
    contender = peer.contender(row, total_steps, None if folder is None else Path(folder))
    train, _ = contender.compile(jax.random.split(jax.random.key(0), (1, 1)))
    jax.block_until_ready(train(0))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
