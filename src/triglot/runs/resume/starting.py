"""`--init-from`: start a training from the weights of another run."""

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ...core.agent import Agent
from ...core.errors import TriglotError, counted
from ...core.experiment import Experiment
from ...core.hyper import check_count
from ...core.loop.state import RunnerState
from ...core.network import Leaf
from ...core.rl.normalize import RunningStats
from ...core.types import AnyAgentState, abstract_key
from ..identity import codec_of, learned, shapes_of
from ..load import Run, named_weights, run_of, stats_of
from ..options import TrainOptions
from ..registry.arg import flag
from ..storage.config import options_of_run

SHOWN = 3  # parameters in a message


@dataclass(frozen=True)
class Start:
    """The weights that a training starts from.

    Attributes:
      folder: of the run that they come from.
      num_updates: of that run.
      arrays: `[S, ...]` by canonical name, in canonical layout.
      leaves: of the source's network, by canonical name.
      stats: of its observations, `[S, ...]`; None without normalization.
      whole: whether all weights are taken, not some by name.
    """

    folder: Path
    num_updates: int
    arrays: dict[str, np.ndarray]
    leaves: dict[str, Leaf]
    stats: RunningStats | None
    whole: bool

    def check(self, agent: Agent) -> None:
        """Check that the weights fit an agent's network.

        Raises:
          TriglotError: naming the first parameters that do not.
        """
        codec, shapes = codec_of(agent.network), shapes_of(agent.network)
        leaves = codec.by_name
        names = sorted(self.arrays.keys() | shapes.keys()) if self.whole else sorted(self.arrays)
        wrong = []
        for name in names:
            here, array = shapes.get(name), self.arrays.get(name)
            there = None if array is None else array.shape[1:]
            if here != there:
                shown = ["absent" if shape is None else str(list(shape)) for shape in (there, here)]
                wrong.append(f"{self._shown(name, leaves)} is {shown[0]} there and {shown[1]} here")
        if wrong:
            more = f" and {len(wrong) - SHOWN} more" if wrong[SHOWN:] else ""
            raise TriglotError(
                f"--init-from {self.folder} does not fit: {'; '.join(wrong[:SHOWN])}{more}. Take "
                "the parameters that fit by name, such as --init-names 'actor/torso/*'."
            )
        for name in self.arrays:
            old, new = self.leaves[name], leaves[name]
            if old.note != new.note or (old.layer != new.layer and (old.unknown or new.unknown)):
                raise TriglotError(
                    f"--init-from {self.folder}: {self._shown(name, leaves)} belongs to "
                    f"{old.note or old.layer} there and to {new.note or new.layer} here, which "
                    "compute different functions."
                )
        shapes = jax.eval_shape(lambda key: agent.init(key, agent.num_envs), abstract_key())
        stats = stats_of(shapes)
        if self.whole and (stats is None) != (self.stats is None):
            there, here = ("", "not ") if stats is None else ("not ", "")
            raise TriglotError(
                f"--init-from {self.folder}: observations are {there}normalized there and "
                f"{here}normalized here, so the weights would read others: set --normalize-obs "
                "alike."
            )

    def _shown(self, name: str, leaves: Mapping[str, Leaf]) -> str:
        """Write a parameter as both networks' authors know it, its name there first."""
        sides = [side[name].display_name(name) for side in (self.leaves, leaves) if name in side]
        return " = ".join(dict.fromkeys(sides))

    def initial(self, experiment: Experiment) -> RunnerState:
        """Initialize all seeds of a training, `[S, ...]`, with these weights."""
        codec = codec_of(experiment.agent.network)
        arrays = {name: jnp.asarray(array) for name, array in self.arrays.items()}
        if not self.whole:  # the other weights are those that the training draws
            drawn = learned(experiment.start().agent).params
            arrays = {**jax.jit(jax.vmap(codec.encode))(drawn), **arrays}
        state = experiment.start(jax.jit(jax.vmap(codec.decode))(arrays))
        if self.stats is None or not self.whole:
            return state
        return replace(state, agent=_with_stats(state.agent, self.stats))

    def describe(self, agent: Agent) -> str:
        """Describe the start for the terminal."""
        return (
            f"starts from {self.folder} after {counted(self.num_updates, 'update')}: "
            f"{len(self.arrays)} of {len(shapes_of(agent.network))} parameters"
        )


def read_start(options: TrainOptions) -> Start | None:
    """Read the weights that a training starts from; None if it starts from its own.

    Raises:
      TriglotError: if an option is missing or invalid, the folder is not a run directory, or its
        checkpoint is missing or damaged.
    """
    folder = options.init_from
    if folder is None:
        for name in ("init_names", "init_seed_index"):
            if getattr(options, name) not in ((), None):
                raise TriglotError(f"{flag(name)} needs a run: --init-from FOLDER.")
        return None
    # `train` has no option for trust; evaluating the run records it.
    options_of_run(folder, advice=f"run `triglot evaluate {folder} --trust` first")
    run = run_of(folder)
    indices = _seed_indices(options, run)
    codec = codec_of(run.agent.network)
    named = [named_weights(run, index) for index in indices]
    chosen = _chosen(options.init_names, list(named[0]), codec.display_names, folder)
    stats = stats_of(run.agent_states)
    return Start(
        folder=folder,
        num_updates=run.num_updates,
        arrays={name: np.stack([arrays[name] for arrays in named]) for name in chosen},
        leaves=codec.by_name,
        stats=None if stats is None else jax.tree.map(lambda leaf: leaf[np.array(indices)], stats),
        whole=not options.init_names,
    )


def _seed_indices(options: TrainOptions, run: Run) -> list[int]:
    """Choose the seed of the source whose weights each seed starts from."""
    there, here = jax.tree.leaves(run.agent_states)[0].shape[0], options.num_seeds
    check_count("num_seeds", here)
    if options.init_seed_index is not None:
        check_count("init_seed_index", options.init_seed_index, 0)
        if options.init_seed_index >= there:
            raise TriglotError(
                f"init_seed_index must be less than the number of seeds of {options.init_from}, "
                f"{there}; got {options.init_seed_index}."
            )
        return [options.init_seed_index] * here
    if there == 1:
        return [0] * here
    if there != here:
        raise TriglotError(
            f"{options.init_from} has {counted(there, 'seed')} and this training {here}: give the "
            "one whose weights start all of them, --init-seed-index 0."
        )
    return list(range(here))


def _chosen(
    patterns: tuple[str, ...], names: list[str], shown: Mapping[str, str], folder: Path
) -> list[str]:
    """Choose parameters by their canonical names, or by those that the author knows."""

    def fits(name: str, pattern: str) -> bool:
        known = (name, shown[name])  # `.layers[0]` is no pattern
        return pattern in known or any(fnmatch.fnmatchcase(each, pattern) for each in known)

    for pattern in patterns:
        if not any(fits(name, pattern) for name in names):
            raise TriglotError(
                f"no parameter of {folder} matches --init-names {pattern!r}; its parameters are "
                f"{', '.join(shown[name] for name in names)}."
            )
    if not patterns:
        return names
    return [name for name in names if any(fits(name, pattern) for pattern in patterns)]


def _with_stats(agent_state: AnyAgentState, stats: RunningStats) -> AnyAgentState:
    """Replace the statistics of observations."""
    current = stats_of(agent_state)
    return jax.tree.map(
        lambda node: stats if node is current else node,
        agent_state,
        is_leaf=lambda node: isinstance(node, RunningStats),
    )
