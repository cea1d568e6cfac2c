"""The size of each algorithm's training program, so that a change which enlarges one is seen.

    python -m benchmarks.programs            # fails where one has grown by more than a tenth
    python -m benchmarks.programs --record   # after a change that is meant to enlarge one

The programs are those of `benchmarks.fingerprints`, on the first library of each case, and those of
the other algorithms as they are by default: equations of the jaxpr, and operations before XLA.
Nothing is compiled; both numbers depend on JAX's version.
"""

import collections
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `benchmarks.start` reads this module in a process that has imported little
    from jax.stages import Compiled, Lowered

ENVS = {
    "gymnax:CartPole-v1": (
        *("a2c", "alphazero", "impala", "muzero", "openai_es", "pqn", "r2d2"),
        *("reinforce", "vmpo"),
    ),
    "gymnax:Pendulum-v1": ("crossq", "ddpg", "mpo", "redq", "td3", "tqc"),
    "gridworld:4x4": ("dyna_q", "monte_carlo"),
}
RECORD = Path(__file__).with_suffix(".json")
MOST_GROWTH = 0.1


def count_equations(jaxpr: Any) -> int:
    """Count the equations of a jaxpr and of those inside of it."""
    total = len(jaxpr.eqns)
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for each in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(each, "jaxpr", each)
                total += count_equations(inner) if hasattr(inner, "eqns") else 0
    return total


def count_operations(lowered: "Lowered") -> int:
    """Count a program's operations before XLA."""
    return len(re.findall(r"= \"?(?:stablehlo|chlo|mhlo)\.\w+", lowered.as_text()))


def count_instructions(compiled: "Compiled") -> dict[str, int]:
    """Count a program's instructions after XLA, and those of them that are fusions."""
    found = re.findall(r"^\s+(?:ROOT )?\S+ = .*? ([a-z][\w-]*)\(", compiled.as_text() or "", re.M)
    kinds = collections.Counter(found)
    instructions = len(found) - kinds["parameter"] - kinds["constant"]
    return {"instructions": instructions, "fusions": kinds["fusion"]}


def sizes() -> dict[str, dict[str, int]]:
    """Trace the training of each case, and count."""
    import jax
    from tqdm import tqdm

    import triglot
    from triglot.core.loop.trainer import CompiledProgram

    from .fingerprints import CASES, Case

    others = {
        algorithm: Case(algorithm, env, backends=("table",) if "gridworld" in env else ("linen",))
        for env, algorithms in ENVS.items()
        for algorithm in algorithms
    }
    counted: dict[str, dict[str, int]] = {}
    for name, case in tqdm({**CASES, **others}.items(), leave=False):
        env = triglot.make_env(case.env)
        agent = triglot.make_agent(
            case.algorithm, env, backend=case.backends[0], config=case.config, hyper=case.hyper
        )
        experiment = triglot.Experiment(agent, env, key=jax.random.key(0), total_steps=1)
        program = experiment.program()
        if isinstance(program, CompiledProgram):  # the others are stepped in Python
            traced = program.trace(experiment.shapes)
            counted[name] = {
                "equations": count_equations(traced.jaxpr.jaxpr),
                "operations": count_operations(traced.lower()),
            }
    return counted


def main(record: bool = False) -> None:
    """Compare the sizes with those recorded, or record them.

    Args:
      record: write them to `benchmarks/programs.json`.
    """
    from . import harness

    counted = sizes()
    before = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    rows, grown = [], []
    for name, numbers in counted.items():
        was = before.get(name, {})
        shown = [f"{was.get(what, 'new')} -> {number}" for what, number in numbers.items()]
        rows.append([name, *shown])
        if any(
            number > (1 + MOST_GROWTH) * was.get(what, number) for what, number in numbers.items()
        ):
            grown.append(name)
    print(harness.table(["program", "equations", "operations"], rows))
    if record:
        RECORD.write_text(json.dumps(counted, indent=1) + "\n")
        print(f"recorded in {RECORD}")
    elif grown:
        sys.exit(
            f"more than {MOST_GROWTH:.0%} larger: {', '.join(grown)}. If that is meant, run "
            "python -m benchmarks.programs --record and commit the file."
        )


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
