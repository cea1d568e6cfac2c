"""The result of a training in Python, and a run folder read back as one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import jax
import numpy as np

from ..core.agent import Agent
from ..core.environment import Environment
from ..core.errors import TriglotError, check_path, counted
from ..core.experiment import MAX_STEPS, Experiment, updates_of
from ..core.host_environment import HostEnvironment
from ..core.hyper import check_count
from ..core.loop.episode import Episodes
from ..core.loop.state import RunnerState
from ..core.network import Variables
from ..core.types import AnyAgentState, AnyHyperparams, as_key
from ..shared.machine.files import check_free, make_folder
from .load import Run, read_run, variables_of
from .policy import Policy, policy_of
from .population import chosen_seed_index
from .python import plan_of
from .storage.journal import read_metrics
from .train import save
from .video import Video, render_video


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainResult:
    """A training that has ended, or that was read from its folder.

    Attributes:
      experiment: the agent in its environment, with keys, hyperparameters and steps.
      runner_state: `[S, ...]`, one entry per seed; `.agent` is the agent state.
      folder: the run directory that holds it; None if none was written.
    """

    experiment: Experiment
    runner_state: RunnerState
    folder: Path | None = None
    recorded: Mapping[str, np.ndarray] | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        agent = self.agent
        where = "" if self.folder is None else f", folder={str(self.folder)!r}"
        return (
            f"TrainResult({agent.name} on {self.env.name}, {self.num_seeds:,} x "
            f"{self.num_steps:,} steps, {counted(self.num_updates, 'update')}{where})"
        )

    @property
    def agent(self) -> Agent:
        """The algorithm with its network."""
        return self.experiment.agent

    @property
    def env(self) -> Environment | HostEnvironment:
        """The single environment."""
        return self.experiment.env

    @property
    def hyper(self) -> AnyHyperparams:
        """The hyperparameters of the training: numbers, schedules, or arrays `[S]`."""
        return self.experiment.hyperparams

    @property
    def agent_states(self) -> AnyAgentState:
        """The agent state of each seed, `[S, ...]`."""
        return self.runner_state.agent

    @property
    def num_seeds(self) -> int:
        """`S`, independent seeds."""
        return self.experiment.num_seeds

    @property
    def num_updates(self) -> int:
        """Updates per seed up to `runner_state`, including those of earlier calls."""
        return updates_of(self.runner_state)

    @property
    def num_steps(self) -> int:
        """Environment steps per seed up to `runner_state`, including those of earlier calls."""
        return self.num_updates * self.experiment.steps_per_update

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """Metrics by name, float `[S, U]`, of the updates of this call, on the host.

        Those of a folder are read at first use, and have the updates that its file lists.
        """
        return self._curves[1]

    @property
    def env_steps(self) -> np.ndarray:
        """Environment steps per seed after each update of `metrics`, int `[U]`."""
        return self._curves[0]

    @cached_property
    def _curves(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        if self.recorded is None:
            assert self.folder is not None  # one of them is there
            return read_metrics(self.folder)
        count = np.shape(next(iter(self.recorded.values())))[1]
        updates = np.arange(self.num_updates - count, self.num_updates) + 1
        return updates * self.experiment.steps_per_update, dict(self.recorded)

    def agent_state(self, seed_index: int = 0) -> AnyAgentState:
        """Select the agent state of one seed.

        Args:
          seed_index: which one, counted from 0.

        Raises:
          TriglotError: if there is no such seed.
        """
        _check_seed(seed_index, self.num_seeds)
        return jax.tree.map(lambda leaf: leaf[seed_index], self.agent_states)

    def variables(self, seed_index: int = 0) -> Variables:
        """Select the network's variables of one seed, for `start_from` and `translate`.

        Args:
          seed_index: which one, counted from 0.

        Raises:
          TriglotError: if there is no such seed, or the agent's state holds no learner.
        """
        _check_seed(seed_index, self.num_seeds)
        return variables_of(Run.of(self.experiment, self.runner_state), seed_index)

    def policy(
        self, seed_index: int | None = None, *, sampled: bool = False, seed: int = 0
    ) -> Policy:
        """Return the policy of one seed as a function of observations, compiled at its first call.

        Args:
          seed_index: which seed acts, counted from 0; None for the first, and for the best member
            of a population whose folder is read.
          sampled: sample actions as in training instead of acting greedily.
          seed: random seed of the samples.

        Raises:
          TriglotError: if there is no such seed, or the policy reads more than observations.
        """
        index = 0 if seed_index is None else seed_index
        if self.folder is not None:
            index = chosen_seed_index(self.folder, seed_index, self.num_seeds)
        _check_seed(index, self.num_seeds)
        run = Run.of(self.experiment, self.runner_state)
        return policy_of(run, index, sampled=sampled, seed=seed)

    def evaluate(
        self,
        num_episodes: int = 64,
        *,
        key: jax.Array | None = None,
        env: Environment | HostEnvironment | None = None,
        max_steps: int = MAX_STEPS,
        explore: bool = False,
    ) -> Episodes:
        """Play whole episodes with every seed's agent.

        Args:
          num_episodes: `E`, of each seed, in parallel.
          key: of the episodes; None for one that the training does not use.
          env: play in another environment with the same observations and actions, such as levels
            that are held out.
          max_steps: maximum number of steps per episode.
          explore: sample actions as in training instead of acting greedily.

        Returns:
          The return and length of each episode, `[S, E]`.

        Raises:
          TriglotError: if an argument is not what it should be, or the environment has other
            observations or actions.
        """
        check_count("num_episodes", num_episodes)
        check_count("max_steps", max_steps)
        experiment = self.experiment if env is None else self.experiment.in_env(env)
        keys = None if key is None else jax.random.split(as_key(key), self.num_seeds)
        return experiment.evaluate(
            self.runner_state,
            num_episodes=num_episodes,
            keys=keys,
            max_steps=max_steps,
            explore=explore,
        )

    def render(
        self,
        path: str | Path | None = None,
        *,
        seed_index: int = 0,
        num_episodes: int = 1,
        key: jax.Array | None = None,
        max_steps: int = 1000,
        explore: bool = False,
    ) -> Video:
        """Play episodes and render them; a notebook shows the video.

        Args:
          path: the file to write, which may exist: `.gif` or `.mp4`, or the suffix that the
            environment draws, such as `.html` for brax. None writes no file.
          seed_index: which seed acts, counted from 0.
          num_episodes: episodes, one after the other.
          key: of the episodes; None for `jax.random.key(0)`.
          max_steps: maximum number of steps per episode.
          explore: sample actions as in training instead of acting greedily.

        Raises:
          TriglotError: if the environment cannot be rendered, as a file of this suffix or at all,
            or the library that writes MP4 is not installed.
        """
        check_count("num_episodes", num_episodes)
        check_count("max_steps", max_steps)
        key = jax.random.key(0) if key is None else as_key(key)
        return render_video(
            self.agent,
            self.env,
            self.agent_state(seed_index),
            jax.random.split(key, num_episodes),
            None if path is None else Path(path),
            max_steps=max_steps,
            explore=explore,
        )

    def save(self, folder: str | Path) -> None:
        """Write the folder of this training: options, metrics, a checkpoint and a learning curve.

        `triglot.load_run` reads it, and so do the commands, such as `triglot evaluate`.

        Args:
          folder: a new folder, or an empty one.

        Raises:
          TriglotError: if the folder is not empty, or it cannot be written.
        """
        check_path("folder", folder)
        path = Path(folder)
        check_free(path)
        metrics = self.metrics
        done = self.num_updates - np.shape(next(iter(metrics.values())))[1]
        plan = plan_of(self.experiment, path, after=done)
        make_folder(path)
        save(plan, self.runner_state, metrics)


class Diverged(TriglotError):
    """A training diverged: a parameter became NaN or infinite.

    Attributes:
      cause: the first metric that is NaN or infinite, with its update and seed.
      result: the last finite result. Its state is a copy from before the divergence (replay buffers
        are those at the end); its metrics are those of all updates, including the last ones.
    """

    def __init__(self, cause: str, result: TrainResult) -> None:
        self.cause, self.result = cause, result
        super().__init__(
            f"training diverged: {cause}. The last finite state that was kept, after "
            f"{counted(result.num_updates, 'update')}, is in the `result` of this exception."
        )


def load_run(
    folder: str | Path,
    *,
    agent: Agent | None = None,
    env: Environment | HostEnvironment | None = None,
    previous: bool = False,
    trust: bool = False,
    checkpoint: str = "last",
) -> TrainResult:
    """Load a folder that `triglot train`, `triglot.train` or `TrainResult.save` wrote.

    Args:
      folder: the run directory.
      agent: the agent, where it has a component without a name, such as a network that was defined
        in a notebook: built as it was built for the training. None builds it from the options.
      env: the environment, likewise.
      previous: if the last checkpoint is damaged, use the one before it.
      trust: import the custom code that the run names, although this user did not begin it here.
      checkpoint: last; or best, the one with the highest evaluated return.

    Raises:
      TriglotError: if the folder is not a run directory, it names code that is not trusted, its
        last checkpoint is missing or damaged, or a component has no name and is not given.
    """
    plan, state = read_run(
        folder, previous=previous, trust=trust, checkpoint=checkpoint, agent=agent, env=env
    )
    return TrainResult(experiment=plan.experiment, runner_state=state, folder=Path(folder))


def _check_seed(seed_index: int, num_seeds: int) -> None:
    check_count("seed_index", seed_index, 0)
    if seed_index >= num_seeds:
        raise TriglotError(
            f"seed_index must be less than the number of seeds, {num_seeds}; got {seed_index}."
        )
