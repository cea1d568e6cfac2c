"""The interface that the compiled trainer and the host trainer share."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import jax

from ..agent import Agent
from ..types import PyTree
from .episode import Episodes
from .sharding import Sharding
from .state import RunnerState, Updated

OnStage: TypeAlias = Callable[[str], None]


def ignore_stage(name: str) -> None:
    """Do nothing; the default of `Program.compile`."""


class Program(Protocol):
    """The updates of all seeds as one callable; close it after use."""

    def compile(self, runner_states: RunnerState, /, on_stage: OnStage = ignore_stage) -> None:
        """Compile before the first call, which otherwise compiles.

        Args:
          runner_states: `[S, ...]`, read for their shapes only.
          on_stage: called with the name of each finished stage: `trace` (if it is separate) and
            `compile`.
        """

    def __call__(self, runner_states: RunnerState, num_updates: Any, /) -> Updated:
        """Run `num_updates` updates of every seed. The given states are donated.

        Args:
          runner_states: `[S, ...]`.
          num_updates: int32 `[]`, at most the trainer's `chunk_size`.

        Returns:
          The new states, and each metric `[S, K]` with `K >= num_updates`: the first `num_updates`
          columns are valid.
        """
        ...

    def close(self) -> None:
        """Close the environments, if any are open."""


class TrainerLike(Protocol):
    """An agent in its environments. `core.trainers.make_trainer` chooses the implementation."""

    @property
    def agent(self) -> Agent:
        """The algorithm."""
        ...

    @property
    def single_env(self) -> Any:
        """The single environment, an `Environment` or a `HostEnvironment`."""
        ...

    @property
    def steps_on_host(self) -> bool:
        """Whether environments are stepped in Python.

        Their state is then not part of `RunnerState`, so a resumed run starts new episodes.
        """
        ...

    @property
    def chunk_size(self) -> int:
        """Maximum number of updates per call of the program."""
        ...

    @property
    def steps_per_update(self) -> int:
        """Environment steps per update and seed."""
        ...

    @property
    def sharding(self) -> Sharding | None:
        """How the training is divided among devices; None for one device."""
        ...

    def init(self, key: jax.Array, hyper: PyTree | None = None) -> RunnerState:
        """Initialize one seed; pure."""
        ...

    def program(self) -> Program:
        """Build the program that trains all seeds."""
        ...

    def check(self) -> None:
        """Trace custom components without running them, so that their errors appear early."""

    def evaluate(
        self, agent_state: Any, key: jax.Array, *, num_episodes: int, max_steps: int, explore: bool
    ) -> Episodes:
        """Play `[E]` whole episodes with one seed's agent state; see `core.evaluate.evaluate`."""
        ...

    def evaluate_seeds(self, agent_states: Any, keys: jax.Array, **options: Any) -> Episodes:
        """Play `[S, E]` whole episodes, with one agent state and one key `[S]` per seed."""
        ...
