"""Options that the commands of several rooms share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from .arg import Arg, Count


@dataclass(frozen=True, kw_only=True)
class LengthOptions:
    """Lengths of training and evaluation, and the seeds.

    Attributes:
      num_seeds: independent seeds, vmapped.
      seed: random seed.
      total_steps: environment steps per seed, rounded up to whole rollouts.
      eval_episodes: greedy evaluation episodes per seed after training.
    """

    num_seeds: Count = 1
    seed: Count = 0
    total_steps: Count = 500_000
    eval_episodes: Count = 128


@dataclass(frozen=True, kw_only=True)
class SharedOptions(LengthOptions):
    """Options of `triglot train`, `triglot compare` and `triglot sweep`.

    Attributes:
      algorithm: a name from `triglot list`, or package.module:object.
      env: suite:name, such as gymnax:CartPole-v1, or package.module:object; options of the
        environment, and of wrappers (`triglot list`), follow after commas:
        jumanji:Maze-v0,num_rows=5,num_cols=5,frame_stack=2.
      optimizer: adam, adamw, radam, rmsprop, sgd or lion, or package.module:object, a function of
        the hyperparameters that returns an optax.GradientTransformation.
      no_preset: ignore the tuned settings for this algorithm and environment that ship with
        triglot (`triglot list presets`). Options that you give override the preset's.
      preset: the preset that the command line used, with the settings that were given instead of
        its own; None if there is none.
      config: static configuration: the algorithm's `Config`, or a mapping of the fields to change.
      hyper: hyperparameters (traced; sweepable without recompiling): the algorithm's
        `Hyperparams`, or a mapping of the fields to change.
    """

    algorithm: Annotated[str, Arg("ALGORITHM", positional=True)]
    env: Annotated[str, Arg("ENVIRONMENT", positional=True)]
    optimizer: Annotated[str | None, Arg("OPTIMIZER", "the algorithm's own")] = None
    no_preset: bool = False
    preset: Annotated[str | None, Arg("NAME", derived=True)] = None
    config: Any = field(default_factory=dict)
    hyper: Any = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Options about this machine, which are never read from a run folder.

    Attributes:
      compilation_cache: folder of JAX's compilation cache.
      no_compilation_cache: disable the compilation cache.
    """

    compilation_cache: Annotated[
        Path | None, Arg("FOLDER", "triglot/jax in the user's cache directory")
    ] = None
    no_compilation_cache: bool = False
