"""The compiled trainer: a chunk of updates as one pure function over `RunnerState`."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from ..agent import Agent, with_network
from ..arguments import check_agent, check_fits
from ..compiling import whole_program
from ..environment import Environment
from ..errors import TriglotError, kind_of
from ..host.trainer import HostProgram, HostTrainer
from ..hyper import MAX_COUNT, as_hyperparams, check_count, is_integer
from ..network import Variables
from ..tracing.hoist import draw_ahead, vmap_seeds
from ..types import AnyAgentState, AnyHyperparams, Params, abstract_key, as_key
from .callbacks import Callback, OnStage, ignore_stage, run_callback
from .episode import Episodes, PlayOptions, play_episodes
from .population import Member, Population, end_chunk
from .rollout import online_rollout, rollout
from .self_play import check_self_play, copied, in_training, renewed
from .sharding import Sharding, gathered, on_host
from .state import (
    RunnerState,
    Updated,
    UpdateKeys,
    first_state,
    scheduled,
    update_keys,
    without_unread,
)
from .vectorize import VectorEnvironment

# Draw a whole chunk's random numbers at once only for rollouts up to this length, where drawing
# them per update costs measurable time, and only up to this many bytes per `USUAL_CHUNK` updates.
_SHORT_ROLLOUT = 8
_MAX_DRAWN_BYTES = 2**26
USUAL_CHUNK = 64

Count: TypeAlias = int | np.int32 | jax.Array  # int32 `[]`; it may be traced
Monitor: TypeAlias = Callable[[AnyAgentState], dict[str, jax.Array]]


@dataclass(frozen=True)
class Trainer:
    """An agent in JAX environments; pure functions over `RunnerState`.

    Attributes:
      agent: the algorithm.
      env: the vectorized environments.
      chunk_size: maximum number of updates per chunk.
      monitor: extra metrics of the agent state after each update, or None.
      every_update: called on the host after each update, from inside the compiled program, see
        `train`; None compiles no callback.
      sharding: how the training is divided among devices; None for one device.
      population: how the seeds learn from each other, checked by `Population.for_agent`; None for
        independent seeds.
    """

    agent: Agent
    env: VectorEnvironment
    chunk_size: int = USUAL_CHUNK
    monitor: Monitor | None = None
    every_update: Callback | None = None
    sharding: Sharding | None = None
    population: Population | None = None

    steps_on_host: ClassVar[bool] = False  # environment steps are part of the compiled program

    def __post_init__(self) -> None:
        check_agent(self.agent)
        if not isinstance(self.env, VectorEnvironment):
            raise TriglotError(
                f"Trainer's env must be a VectorEnvironment, got {kind_of(self.env)}: give "
                "triglot.rl.VectorEnvironment(env, agent.num_envs)."
            )
        check_fits(self.agent, self.single_env)
        if self.env.num_envs != self.agent.num_envs:
            raise TriglotError(
                f"Trainer's env has {self.env.num_envs} environments, and the agent steps "
                f"num_envs={self.agent.num_envs}: give VectorEnvironment(env, agent.num_envs)."
            )
        check_count("chunk_size", self.chunk_size)
        sized = self.env.for_rollouts(self.agent.rollout_length)
        object.__setattr__(self, "env", sized)
        check_self_play(self.agent, self.single_env)
        if self.sharding is not None and self.every_update is not None:
            raise TriglotError(
                "every_update is called in the order of the updates, which JAX does on one device "
                f"only; the training has {self.sharding.num_devices}: use callback."
            )

    @property
    def single_env(self) -> Environment:
        """The single environment."""
        return self.env.env

    @property
    def steps_per_update(self) -> int:
        """Environment steps per update."""
        return self.agent.rollout_length * self.env.num_envs

    def init(self, key: jax.Array, hyper: AnyHyperparams | None = None) -> RunnerState:
        """Initialize the agent and reset the environments."""
        key = as_key(key)
        hyper = as_hyperparams(self.agent.name, hyper, self.agent.hyper)
        if self.population is not None:
            hyper = self.population.draw(key, self.agent.hyper if hyper is None else hyper)
        reset = in_training(self.agent, self.env).reset
        state = first_state(self.agent, self.env.num_envs, reset, key, hyper)
        member = () if self.population is None else Member.start()
        opponent = copied(self.agent, self.single_env, state.agent)
        return replace(state, member=member, opponent=opponent)

    def update(self, runner_state: RunnerState, keys: UpdateKeys | None = None) -> Updated:
        """Collect one rollout and learn from it; an online agent learns after every step.

        Args:
          runner_state: the current state.
          keys: this update's `update_keys`; None makes them.

        Returns:
          The next state, and scalar metrics.
        """
        if keys is None:
            keys = update_keys(runner_state.key, runner_state.num_updates)
        env, opponent = renewed(self.agent, self.env, runner_state)
        env_state = env.refresh(runner_state.env, keys.pool)
        if self.agent.explores_by_parameters:
            env_state = env.restart(env_state, keys.start)
        state = replace(runner_state, env=env_state, opponent=opponent)
        state, hyper = scheduled(state, self.steps_per_update)
        if self.agent.online:
            state, metrics, stats = online_rollout(self.agent, env, state, keys.rollout)
        else:
            state, trajectory, stats = rollout(self.agent, env, state, keys.rollout)
            if self.sharding is not None:
                trajectory = self.sharding.keep_divided(trajectory)
            agent_state, metrics = self.agent.update(state.agent, trajectory, keys.learn)
            state = replace(state, agent=agent_state)
        extra = {} if self.monitor is None else self.monitor(state.agent)
        if self.population is not None:
            hyper |= self.population.values(state)
            state = replace(state, member=state.member.add(stats))
        after = replace(state, num_updates=state.num_updates + 1)
        shown = without_unread(self.agent, {**stats.metrics(), **hyper, **metrics})
        return after, {**shown, **extra}

    def train_chunk(self, runner_state: RunnerState, num_updates: Count | None = None) -> Updated:
        """Run `num_updates` updates; pure, so it can be jitted and vmapped over seeds.

        Args:
          runner_state: the current state.
          num_updates: at most `chunk_size` (the default). It may be traced, so that a shorter
            last chunk does not recompile.

        Returns:
          The new state, and each metric `[chunk_size]`, of which the first `num_updates` entries
          are valid.
        """
        if not isinstance(runner_state, RunnerState):
            raise TriglotError(
                "train_chunk takes a RunnerState, as Trainer.init returns it, got "
                f"{kind_of(runner_state)}."
            )
        count = self.chunk_size if num_updates is None else num_updates
        if is_integer(count):
            check_count("num_updates", count, 0, self.chunk_size)
        drawn, update = self._draw(runner_state)
        _, shapes = jax.eval_shape(update, runner_state, jax.tree.map(lambda leaf: leaf[0], drawn))
        buffers = jax.tree.map(lambda s: jnp.zeros((self.chunk_size, *s.shape), s.dtype), shapes)

        def body(index: jax.Array, carry: tuple) -> tuple:
            runner_state, buffers = carry
            inputs = jax.tree.map(lambda leaf: leaf[index], drawn)
            runner_state, metrics = update(runner_state, inputs)
            if self.every_update is not None:
                run_callback(self.every_update, runner_state.num_updates, metrics)
            return runner_state, jax.tree.map(lambda b, m: b.at[index].set(m), buffers, metrics)

        return jax.lax.fori_loop(0, count, body, (runner_state, buffers))

    def _draw(
        self, runner_state: RunnerState
    ) -> tuple[list[jax.Array], Callable[[RunnerState, list[jax.Array]], Updated]]:
        """Make a chunk's keys at once, and its random numbers too if its rollouts are short.

        Returns:
          The random values of each update, `[chunk_size, ...]`; and the update as a function of one
          entry of them.
        """
        short = self.agent.rollout_length <= _SHORT_ROLLOUT
        run = self.update if short else jax.jit(self.update)  # nothing is drawn ahead of a jit
        key = runner_state.key

        def update(runner_state: RunnerState, number: jax.Array) -> Updated:
            return run(runner_state, update_keys(key, number))

        numbers = runner_state.num_updates + jnp.arange(self.chunk_size, dtype=jnp.int32)
        # The limit per update is the same for all chunks up to the usual size, so that the size of
        # a chunk does not decide what is drawn ahead.
        max_bytes = _MAX_DRAWN_BYTES * self.chunk_size // max(self.chunk_size, USUAL_CHUNK)
        return draw_ahead(update, runner_state, numbers, max_bytes=max_bytes)

    def program(self) -> "CompiledProgram":
        """Build the program that trains all seeds."""
        return CompiledProgram(self)

    def check(self) -> None:
        """Trace reset, step and one chunk without running them.

        Raises:
          TriglotError: if the environment's shapes change between reset and step.
        """
        state = jax.eval_shape(self.init, abstract_key())
        jax.eval_shape(self.train_chunk, state)

    def evaluate(
        self, agent_state: AnyAgentState, key: jax.Array, **options: Unpack[PlayOptions]
    ) -> Episodes:
        """Play `[E]` whole episodes with one seed's agent state; see `core.evaluate.evaluate`."""
        return play_episodes(self.agent, self.single_env, agent_state, key, **options)

    def evaluate_seeds(
        self, agent_states: AnyAgentState, keys: jax.Array, **options: Unpack[PlayOptions]
    ) -> Episodes:
        """Play `[S, E]` whole episodes, with one agent state and one key `[S]` per seed.

        Divided seeds are played by their devices; their agent states may be placed already.
        """
        if self.seed_sharding is None:
            return play_seeds(self, agent_states, keys, **options)
        placed = self.seed_sharding.place((agent_states, keys))
        return gathered(play_seeds(self, *placed, **options), keys.shape[0])

    @property
    def seed_sharding(self) -> Sharding | None:
        """How the seeds are divided; None where each device has all of them."""
        sharding = self.sharding
        return sharding if sharding is not None and sharding.shard == "seeds" else None


@whole_program(static_argnums=0, runs_once=True)
def init_seeds(
    trainer: "TrainerLike",
    keys: jax.Array,
    hyper: AnyHyperparams = None,
    params: Params | None = None,
) -> RunnerState:
    """Initialize one seed per key `[S]`.

    Args:
      trainer: of either kind.
      keys: typed keys `[S]`.
      hyper: hyperparameters of all seeds, or `per_seed` ones `[S]`; None for the agent's own.
      params: with which the agent's network starts, `[S, ...]`; None draws them.
    """

    def init(key: jax.Array, hyper: AnyHyperparams, params: Params | None) -> RunnerState:
        return (trainer if params is None else _with_params(trainer, params)).init(key, hyper)

    # Sequential, not vmapped: vmapped orthogonal initializers take twice as long to compile, and
    # some of their programs deadlock on two CPU cores with JAX 0.10.2. To vmap `network.init` under
    # `jit` there, pass `compiler_options={"xla_cpu_scheduler_type":
    # "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}`.
    if any(jnp.ndim(leaf) for leaf in jax.tree.leaves(hyper)):
        return jax.lax.map(lambda seed: init(*seed), (keys, hyper, params))
    return jax.lax.map(lambda seed: init(seed[0], hyper, seed[1]), (keys, params))


def _with_params(trainer: "TrainerLike", params: Params) -> "TrainerLike":
    """Replace the initial parameters of the agent's network."""
    # The agent's `init` also copies them to where they belong, such as target networks, and begins
    # the optimizer's state with them.
    network = trainer.agent.network

    def init(key: jax.Array) -> Variables:
        return replace(network.init(key), params=params)

    return replace(trainer, agent=with_network(trainer.agent, replace(network, init=init)))


# The small scalar loops of agents that learn at each step are a sixth slower at a lower level.
@whole_program(
    needs_default=lambda trainer: trainer.agent.online, static_argnums=0, donate_argnums=1
)
def train_seeds(trainer: Trainer, runner_states: RunnerState, num_updates: Count) -> Updated:
    """Run `num_updates` updates of every seed. The given states are donated.

    The function is compiled once per trainer: equal trainers share the program. With several
    devices, the states must be placed (`Sharding.place`).

    Returns:
      The new states `[S, ...]`, and each metric `[S, chunk_size]`, of which the first `num_updates`
      columns are valid.
    """
    sharding, population = trainer.sharding, trainer.population
    if sharding is None:
        states, metrics = _train_seeds(trainer, runner_states, num_updates)
    else:
        states, metrics = _train_on_devices(trainer, sharding, runner_states, num_updates)
    if population is None:
        return states, metrics
    states, metrics = end_chunk(population, states, metrics, num_updates)
    if sharding is not None:  # members are exchanged between devices
        states = jax.lax.with_sharding_constraint(states, sharding.of(states))
    return states, metrics


@whole_program(static_argnums=0, static_argnames=("num_episodes", "max_steps", "explore"))
def play_seeds(
    trainer: Trainer, agent_states: AnyAgentState, keys: jax.Array, **options: Unpack[PlayOptions]
) -> Episodes:
    """Play whole episodes with every seed; divided ones must be placed. See `evaluate_seeds`."""
    play = jax.vmap(lambda state, key: trainer.evaluate(state, key, **options))
    if trainer.seed_sharding is None:
        return play(agent_states, keys)
    return trainer.seed_sharding.over_seeds(play, agent_states, keys)


def _train_seeds(trainer: Trainer, runner_states: RunnerState, num_updates: Count) -> Updated:
    return vmap_seeds(lambda state: trainer.train_chunk(state, num_updates), runner_states)


def _train_on_devices(
    trainer: Trainer, sharding: Sharding, runner_states: RunnerState, num_updates: Count
) -> Updated:
    """Trace `_train_seeds` on the devices on which the states are placed."""
    if sharding.shard == "seeds":
        return sharding.over_seeds(
            lambda share: _train_seeds(trainer, share, num_updates), runner_states
        )
    trainer = replace(trainer, agent=sharding.data_parallel(trainer.agent))
    return sharding.constrained(*_train_seeds(trainer, runner_states, num_updates))


class CompiledProgram:
    """The updates of all seeds as one callable: `train_seeds`, optionally compiled ahead of time.

    Attributes:
      compiled: what runs; None compiles at the first call.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.compiled: Callable[..., Updated] | None = None
        self._trainer = trainer
        self._num_seeds: int | None = None

    def trace(self, runner_states: RunnerState) -> jax.stages.Traced:
        """Trace the program for runner states `[S, ...]`, which are read for their shapes only."""
        self._num_seeds = runner_states.num_updates.shape[0]
        sharding = self._trainer.sharding
        shapes = runner_states if sharding is None else sharding.placed_shapes(runner_states)
        return train_seeds.trace(self._trainer, shapes, np.int32(0))

    def compile(self, runner_states: RunnerState, on_stage: OnStage = ignore_stage) -> None:
        """Trace and compile before the first call, which otherwise compiles.

        Args:
          runner_states: `[S, ...]`, read for their shapes only.
          on_stage: called with the name of each finished stage: `trace` and `compile`.
        """
        lowered = self.trace(runner_states).lower()
        on_stage("trace")
        self.compiled = lowered.compile()
        on_stage("compile")

    def __call__(self, runner_states: RunnerState, num_updates: Count) -> Updated:
        """Run `num_updates` updates of every seed. The given states are donated.

        Args:
          runner_states: `[S, ...]`.
          num_updates: int32 `[]`, at most the trainer's `chunk_size`.

        Returns:
          The new states, and each metric `[S, K]` with `K >= num_updates`: the first `num_updates`
          columns are valid.

        Raises:
          TriglotError: if the environment's shapes change between reset and step.
        """
        sharding = self._trainer.sharding
        if sharding is None:
            return self._run(runner_states, num_updates)
        num_seeds = self._num_seeds = self._num_seeds or runner_states.num_updates.shape[0]
        states, metrics = self._run(_moved(sharding, runner_states), num_updates)
        if states.num_updates.shape[0] == num_seeds:
            return states, metrics
        return states, {name: on_host(values)[:num_seeds] for name, values in metrics.items()}

    def _run(self, runner_states: RunnerState, num_updates: Count) -> Updated:
        if self.compiled is not None:
            return self.compiled(runner_states, num_updates)
        return train_seeds(self._trainer, runner_states, num_updates)

    def close(self) -> None:
        """Do nothing: a compiled program holds no open resources."""


TrainerLike: TypeAlias = Trainer | HostTrainer
"""An agent in its environments; `core.trainers.make_trainer` chooses which."""
Program: TypeAlias = CompiledProgram | HostProgram
"""The updates of all seeds as one callable; close it after use."""


def _moved(sharding: Sharding, runner_states: RunnerState) -> RunnerState:
    """Put the runner states on the devices; the given ones are donated."""
    states = sharding.place(runner_states)
    for old, new in zip(jax.tree.leaves(runner_states), jax.tree.leaves(states), strict=True):
        if old is not new:
            old.delete()
    return states


def updates_for(steps_per_update: int, total_steps: int) -> int:
    """Count the updates that cover `total_steps` environment steps, rounded up.

    Raises:
      TriglotError: if `total_steps` is not a positive integer, or the updates exceed 2^31 - 1.
    """
    # More steps than updates are possible, which alone are counted.
    check_count("total_steps", total_steps, maximum=MAX_COUNT * steps_per_update)
    return -(-total_steps // steps_per_update)
