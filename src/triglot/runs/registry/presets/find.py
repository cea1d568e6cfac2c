"""Presets: tuned settings that ship with triglot, one TOML file per algorithm and environment."""

import tomllib
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ....core.errors import check_text, unknown
from ....core.records import Values

FOLDER = Path(__file__).parent
FOR_TRAIN = ("total_steps",)  # keys of a file that `triglot.train` takes; others are the agent's


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Returns over independent seeds, in one batching.

    Attributes:
      num_seeds: in all.
      programs: compiled programs over which the seeds were divided; results are bitwise identical
        at equal batching only.
      mean: over seeds, of the mean return over episodes after training.
      interval: of the mean over seeds, at 95 % (Student's t).
    """

    num_seeds: int
    programs: int
    mean: float
    interval: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Tuned settings of an algorithm in an environment.

    Attributes:
      algorithm, env: what they are for.
      agent: arguments of `triglot.make_agent`.
      train: arguments of `triglot.train`.
      sampled: whether actions were sampled when returns were measured, instead of greedy.
      measured: returns after training with these settings; each of other seeds.
    """

    algorithm: str
    env: str
    agent: Values
    train: Values
    sampled: bool
    measured: tuple[Sample, ...]

    @property
    def name(self) -> str:
        """What it is for, such as `ppo on jumanji:Maze-v0`."""
        return f"{self.algorithm} on {self.env}"

    @property
    def options(self) -> Values:
        """All settings by the names that they have on the command line."""
        agent = dict(self.agent)
        tables = [agent.pop(table, {}) for table in ("config", "hyper")]
        return {**self.train, **agent, **tables[0], **tables[1]}


def preset(algorithm: str, env: str) -> Preset:
    """Look up the tuned settings of an algorithm in an environment.

    The command line uses these settings by default. In Python, presets are never applied
    automatically, since defaults that depend on two names would surprise the reader of a script:
    pass them on, with networks of any library:

        tuned = triglot.preset("ppo", "jumanji:Maze-v0")
        agent = triglot.make_agent("ppo", env, **tuned.agent)
        result = triglot.train(agent, env, key=key, **tuned.train)

    Args:
      algorithm: its name.
      env: the name of the environment; with options it is another one.

    Raises:
      TriglotError: if there is none, naming those that exist.
    """
    check_text("algorithm", algorithm)
    check_text("env", env)
    matching = find(algorithm, env)
    if matching is None:
        raise unknown("preset", f"{algorithm} on {env}", [preset.name for preset in presets()])
    return deepcopy(matching)  # which a caller may change


def find(algorithm: str, env: str | None) -> Preset | None:
    """Look up a preset; None if there is none."""
    return _by_name().get((algorithm, env or ""))


def presets() -> list[Preset]:
    """List all presets."""
    return list(_by_name().values())


@cache
def _by_name() -> dict[tuple[str, str], Preset]:
    read_presets = map(_read, sorted(FOLDER.glob("*.toml")))
    return {(preset.algorithm, preset.env): preset for preset in read_presets}


def _read(path: Path) -> Preset:
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    measured = content.pop("measured")
    names = {name: content.pop(name) for name in ("algorithm", "env")}
    return Preset(
        **names,
        train={name: content.pop(name) for name in FOR_TRAIN},
        agent=content,
        sampled=measured.get("sampled", False),
        measured=tuple(
            Sample(**{**sample, "interval": tuple(sample["interval"])})
            for sample in measured["samples"]
        ),
    )
