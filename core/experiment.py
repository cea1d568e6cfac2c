"""One experiment: an agent in its environments, for some seeds and steps. All training uses it."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from .agent import Agent
from .arguments import check_agent
from .environment import Environment
from .errors import TriglotError, counted, kind_of
from .garbage import collected_rarely
from .host_environment import HostEnvironment
from .hyper import (
    as_hyperparams,
    check_count,
    check_hyperparams,
    fill_schedule_horizon,
    per_seed,
    schedules_of,
    with_schedules,
)
from .loop.callbacks import Callback, OnStage, check_callback, ignore_stage
from .loop.checkpoint import Checkpoints
from .loop.chunks import Chunk, run_chunks
from .loop.continuing import check_continued, continued
from .loop.divergence import divergence, updates_before_learning
from .loop.episode import Episodes
from .loop.population import Population
from .loop.sharding import Sharding, fewest_devices, gathered, make_sharding, on_host
from .loop.state import RunnerState
from .loop.trainer import (
    USUAL_CHUNK,
    Monitor,
    Program,
    Trainer,
    TrainerLike,
    init_seeds,
    play_seeds,
    updates_for,
)
from .records import JSON
from .rl.schedules import Schedule
from .trainers import make_trainer
from .types import AnyHyperparams, Params, PyTree, as_key, is_key, type_differences
from .wrappers.levels import held_out

MAX_STEPS = 100_000  # of an episode in an evaluation


@dataclass(frozen=True, eq=False)
class Experiment:
    """An agent in its environments, and how it is trained: all seeds in one compiled program.

    It is checked when it is built, and nothing is computed before `start`. `dataclasses.replace`
    makes one that differs in some of its parts.

        experiment = triglot.Experiment(agent, env, key=jax.random.key(0), total_steps=100_000)
        for chunk in experiment.chunks():
            print(chunk.num_updates, chunk.metrics["episode_return"].mean())
        experiment.save("runs/mine", chunk.runner_states)

    Attributes:
      agent: the algorithm with its network.
      env: a single environment; the agent steps `agent.num_envs` of them.
      key: a random key such as `jax.random.key(0)`, split into one key per seed; or those keys,
        `[S]`.
      total_steps: environment steps of each seed, rounded up to whole rollouts.
      num_seeds: `S`, independent seeds, vmapped.
      hyper: hyperparameters that replace the agent's own: the algorithm's `Hyperparams`, or values
        by name, with an array `[S]` where seeds differ; or a sequence with the `Hyperparams` of
        each seed.
      devices: how many devices the training is divided among, or a mesh of them with one axis; None
        leaves the choice to `most_devices`.
      shard: what is divided, `seeds` or `envs` (the environments of each seed); None for seeds, if
        there are as many as devices.
      most_devices: without `devices`, the seeds are divided among the fewest devices, at most so
        many, with which each has as few seeds as possible.
      population: the seeds are members of a population of this size, which copy each other.
      every_update: called after each update from inside the compiled program, see `triglot.train`.
      monitor: computes further metrics from the agent's state after each update.
      chunk_size: the most updates between two returns to Python.

    Raises:
      TriglotError: if an argument is not what it should be, such as another key, an agent for other
        observations or actions, or an array in `hyper` of another shape than `[S]`; if the devices
        do not exist or do not divide the training.
    """

    agent: Agent
    env: Environment | HostEnvironment
    _: KW_ONLY
    key: jax.Array
    total_steps: int
    num_seeds: int = 1
    hyper: PyTree | Sequence[PyTree] | None = None
    devices: int | Mesh | None = None
    shard: str | None = None
    most_devices: int = 1
    population: Population | None = None
    every_update: Callback | None = None
    monitor: Monitor | None = None
    chunk_size: int = USUAL_CHUNK

    def __post_init__(self) -> None:
        check_agent(self.agent)
        check_count("num_seeds", self.num_seeds)
        if self.every_update is not None:
            check_callback("every_update", self.every_update)
        num_seeds = self.num_seeds
        if self.population is not None:
            num_seeds = _members(self.population, num_seeds)
        if isinstance(self.key, jax.Array) and is_key(self.key) and self.key.ndim == 1:
            num_seeds = _keys_of_seeds(self.key, num_seeds)
        else:
            object.__setattr__(self, "key", as_key(self.key))
        object.__setattr__(self, "num_seeds", num_seeds)
        _ = self.trainer, self.hyperparams

    @cached_property
    def sharding(self) -> Sharding | None:
        """How the training is divided among devices; None for one device."""
        sizes = {"num_seeds": self.num_seeds, "num_envs": self.agent.num_envs}
        if self.devices is not None:
            return make_sharding(self.devices, self.shard, **sizes)
        if self.shard is not None:
            raise TriglotError(f"shard={self.shard!r} has no effect without devices: give both.")
        number = fewest_devices(self.num_seeds, self.most_devices)
        if self.population is not None:
            number = max(n for n in range(1, number + 1) if self.num_seeds % n == 0)
        if number == 1 or isinstance(self.env, HostEnvironment):
            return None
        return make_sharding(number, "seeds", **sizes)

    @cached_property
    def trainer(self) -> TrainerLike:
        """The agent in its environments, compiled or stepped in Python."""
        return make_trainer(
            self.agent,
            self.env,
            every_update=self.every_update,
            monitor=self.monitor,
            sharding=self.sharding,
            population=self.checked_population,
            chunk_size=self.chunk_size,
        )

    @cached_property
    def checked_population(self) -> Population | None:
        """The population with what it perturbs, read for the agent; None for independent seeds."""
        if self.population is None:
            return None
        return self.population.for_agent(self.agent, self._one_hyper, self.num_updates)

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update of a seed."""
        return self.agent.rollout_length * self.agent.num_envs

    @cached_property
    def num_updates(self) -> int:
        """Updates of each seed."""
        return updates_for(self.steps_per_update, self.total_steps)

    @property
    def num_steps(self) -> int:
        """Environment steps of each seed, `total_steps` rounded up to whole rollouts."""
        return self.num_updates * self.steps_per_update

    @cached_property
    def keys(self) -> jax.Array:
        """The key of each seed, `[S]`."""
        return _split(self.key, self.num_seeds)

    @property
    def _key_shapes(self) -> jax.ShapeDtypeStruct:
        # More seeds may be asked for than there is memory, which is checked by the shapes.
        return jax.eval_shape(lambda: _split(self.key, self.num_seeds))

    @cached_property
    def hyperparams(self) -> AnyHyperparams:
        """The hyperparameters with which the training starts, numbers `[]` or arrays `[S]`.

        What is left to the environment is filled in, and schedules without a span last the whole
        training.
        """
        if not isinstance(self.hyper, list | tuple):
            return per_seed(self._one_hyper, self.num_seeds)
        if len(self.hyper) != self.num_seeds:
            raise TriglotError(
                f"hyper has hyperparameters for {counted(len(self.hyper), 'seed')}, and there are "
                f"{self.num_seeds}: give one for each."
            )
        different = {id(hyper): hyper for hyper in self.hyper}  # seeds of one setting share theirs
        complete = {name: self.complete(hyper) for name, hyper in different.items()}
        numbers = [complete[id(hyper)] for hyper in self.hyper]
        return jax.tree.map(lambda *rows: jnp.asarray(np.array(rows, np.float32)), *numbers)

    @property
    def _one_hyper(self) -> AnyHyperparams:
        return self.complete(self.hyper[0] if isinstance(self.hyper, list | tuple) else self.hyper)

    def complete(self, hyper: AnyHyperparams | None) -> AnyHyperparams:
        """Check hyperparameters, and fill in what they leave to the environment and the training.

        Args:
          hyper: as `hyper` of the experiment, of all seeds or of one.

        Raises:
          TriglotError: if one is unknown or out of range.
        """
        name = self.agent.name
        hyper = as_hyperparams(name, hyper, self.agent.hyper)
        hyper = with_schedules(self.agent.for_environment(hyper))
        if hyper is not self.agent.hyper:
            check_hyperparams(name, hyper, self.agent.config)
        return fill_schedule_horizon(hyper, self.num_updates)

    @cached_property
    def shapes(self) -> RunnerState:
        """The shapes and dtypes of the states `[S, ...]`."""
        return init_seeds.eval_shape(self.trainer, self._key_shapes, self.hyperparams)

    def start(self, params: Params | None = None) -> RunnerState:
        """Initialize the agent and the environments of every seed, `[S, ...]`.

        Args:
          params: `[S, ...]`, with which the agent's network starts; None draws them. Other random
            numbers do not depend on it.

        Raises:
          TriglotError: if they do not fit the network, naming the first array that does not.
        """
        if params is None:
            return init_seeds(self.trainer, self.keys, self.hyperparams)
        network = self.agent.network
        expected = jax.eval_shape(jax.vmap(network.init), self._key_shapes).params
        for name, (actual, wanted) in type_differences(params, expected).items():
            raise TriglotError(
                f"the parameters do not fit the {network.backend} network {network.name!r} of "
                f"{counted(self.num_seeds, 'seed')}: {name} is {actual}, expected {wanted}."
            )
        return init_seeds(self.trainer, self.keys, self.hyperparams, params)

    def program(self) -> Program:
        """Build the program that trains all seeds; close it after use."""
        return self.trainer.program()

    def start_and_compile(
        self,
        program: Program,
        background: Executor | None = None,
        on_stage: OnStage = ignore_stage,
    ) -> RunnerState:
        """Initialize every seed while the training compiles, if both can be done at once.

        Host environments, and several processes, need the states before they compile.

        Args:
          program: of this experiment; it is compiled.
          background: runs the initialization on another thread; None makes one for it.
          on_stage: see `CompiledProgram.compile`; called with `init` as well.

        Returns:
          The initial states, `[S, ...]`.
        """
        with ExitStack() as stack:
            stack.enter_context(collected_rarely())
            if not isinstance(self.trainer, Trainer) or jax.process_count() > 1:
                state = jax.block_until_ready(self.start())
                on_stage("init")
                program.compile(state, on_stage)
                return state
            # Traced here: on two threads, both would wait for Python's lock in turns.
            key_shapes, hyper = self._key_shapes, self.hyperparams
            lowered = init_seeds.lower(self.trainer, key_shapes, hyper)
            if background is None:
                background = stack.enter_context(ThreadPoolExecutor(1))
            pending = background.submit(
                lambda: jax.block_until_ready(lowered.compile()(self.keys, hyper))
            )
            on_stage("init")
            program.compile(self.shapes, on_stage)
            return pending.result()

    def chunks(
        self,
        state: RunnerState | None = None,
        *,
        program: Program | None = None,
        until: int | None = None,
        target_seconds: float | None = None,
        boundaries: Sequence[int] = (),
    ) -> Iterator[Chunk]:
        """Train, some updates at a time. How they are divided into chunks changes no number.

        Args:
          state: `[S, ...]`, from `start`, `restore`, or an earlier chunk; it is donated, so that
            its arrays cannot be used afterwards. None for `start`.
          program: of this experiment, such as a compiled one; None builds and closes one.
          until: updates after which to stop, those done before included; None for all.
          target_seconds: choose chunks that take about this long, beginning with one update; None
            for `chunk_size` updates each.
          boundaries: end a chunk at each multiple of each of these numbers of updates.

        Yields:
          Each chunk: `runner_states` after it, `metrics` by name `[S, count]`, and `num_updates`.
        """
        ends = [*boundaries]
        if self.population is not None:
            ends.append(self.population.exploit_every)
        with ExitStack() as stack:
            if program is None:
                program = stack.enter_context(closing(self.program()))
            state = self.start_and_compile(program) if state is None else state
            yield from run_chunks(
                program,
                state,
                self.num_updates if until is None else until,
                self.chunk_size,
                done=updates_of(state),
                target_seconds=target_seconds,
                boundaries=ends,
            )

    def divergence(self, chunk: Chunk) -> str | None:
        """Name the first metric that is not finite, if a parameter is not; None if all is well."""
        return divergence(
            self.env.name,
            chunk.runner_states,
            chunk.metrics,
            chunk.num_updates - chunk.count,
            self.updates_before_learning,
        )

    @property
    def updates_before_learning(self) -> int:
        """Updates before the first from which the agent learns."""
        return updates_before_learning(self.agent.learning_starts, self.steps_per_update)

    def continued(self, state: RunnerState, changed: Collection[str] = ()) -> RunnerState:
        """Copy the state of an earlier training, and fit it to this one.

        Schedules that ended with the earlier training are stretched to the end of this one.

        Args:
          state: `[S, ...]`, of this agent in this environment.
          changed: hyperparameters, by name, that have this experiment's values from now on.

        Raises:
          TriglotError: if the state is another training's, or nothing would be learned from the
            rest of this one, because its learning rate is 0.
        """
        check_continued(self.agent, self.shapes, state, self.num_seeds)
        hyper = {name: getattr(self._one_hyper, name) for name in changed}
        return continued(self.agent, state, hyper, self.num_updates, self.steps_per_update)

    def whole(self, state: PyTree) -> PyTree:
        """Collect the arrays `[S, ...]` of all devices on the first one."""
        return gathered(state, self.num_seeds)

    def save(
        self,
        folder: str | Path,
        state: RunnerState,
        *,
        beside: Mapping[str, PyTree] | None = None,
        of: JSON | None = None,
        write_files: Callable[[Path], None] | None = None,
        keep: int = 2,
    ) -> None:
        """Write a checkpoint that `restore` reads, atomically, with the number of updates as name.

        Args:
          folder: where this experiment's checkpoints are.
          state: `[S, ...]`.
          beside: further arrays, by name, that belong to the state.
          of: what the arrays belong to, as JSON has it; see `core.manifest`.
          write_files: called with the checkpoint's folder before it is complete, to write further
            files into it.
          keep: how many checkpoints to keep; older ones are deleted.

        Raises:
          CannotWrite: if it cannot be written (a full disk, a read-only folder).
        """
        tree = self.whole(state)
        tree = tree if beside is None else {"state": tree, **beside}
        Checkpoints(Path(folder), keep).save(updates_of(state), tree, of, write_files)

    def restore(self, folder: str | Path, *, previous: bool = False) -> RunnerState:
        """Read the last checkpoint that `save` wrote, to go on with this experiment.

        Args:
          folder: where the checkpoints are.
          previous: if the last one is damaged, read the one before it.

        Raises:
          TriglotError: if there is none, it is damaged, or it belongs to another training.
        """
        _, state = Checkpoints(Path(folder)).restore(self.shapes, previous=previous)
        return state if self._has_schedules(state.schedules) else self.continued(state)

    def _has_schedules(self, schedules: Mapping[str, Schedule]) -> bool:
        """Whether these are this training's own schedules, which no longer training stretches."""
        expected = schedules_of(self.hyperparams)
        return jax.tree.structure(expected) == jax.tree.structure(schedules) and all(
            np.all(np.asarray(number) == np.asarray(wanted, np.float32))
            for number, wanted in zip(
                jax.tree.leaves(schedules), jax.tree.leaves(expected), strict=True
            )
        )

    def in_env(self, env: Environment | HostEnvironment) -> "Experiment":
        """Put the agent into another environment, with the same observations and actions."""
        return replace(self, env=env)

    @cached_property
    def by_levels(self) -> "list[Experiment]":
        """Where the agent is evaluated: as it is trained, then on levels held out, if any are."""
        unseen = held_out(self.env)
        return [self] if unseen is None else [self, self.in_env(unseen)]

    def evaluate(
        self,
        state: RunnerState,
        *,
        num_episodes: int = 64,
        keys: jax.Array | None = None,
        max_steps: int = MAX_STEPS,
        explore: bool = False,
    ) -> Episodes:
        """Play whole episodes with every seed's agent.

        Args:
          state: `[S, ...]`.
          num_episodes: `E`, of each seed, in parallel.
          keys: `[S]`; None for `evaluation_keys`, which the training does not use.
          max_steps: of an episode.
          explore: sample actions as in training instead of acting greedily.

        Returns:
          The return and length of each episode, `[S, E]`.
        """
        keys = evaluation_keys(self.key, self.num_seeds) if keys is None else keys
        return self.trainer.evaluate_seeds(
            state.agent, keys, num_episodes=num_episodes, max_steps=max_steps, explore=explore
        )

    def greedy_returns(
        self, state: RunnerState, num_episodes: int, keys: jax.Array | None = None
    ) -> list[np.ndarray]:
        """Play greedy episodes as the training was, and on levels held out if it has any.

        Args:
          state: `[S, ...]`.
          num_episodes: of each seed.
          keys: see `evaluate`.

        Returns:
          The mean return of each seed, float32 `[S]`; then that on levels held out.
        """
        played = [
            experiment.evaluate(state, num_episodes=num_episodes, keys=keys)
            for experiment in self.by_levels
        ]
        return [np.asarray(episodes.returns).mean(axis=1) for episodes in played]

    def compile_evaluation(self, state: RunnerState, *, num_episodes: int) -> None:
        """Compile the greedy evaluation before it is called, if it is one program.

        Args:
          state: `[S, ...]`, read for its shapes only.
          num_episodes: of each seed.
        """
        trainer = self.trainer
        if not isinstance(trainer, Trainer) or jax.process_count() > 1:
            return
        shapes = (state.agent, self._key_shapes)
        if trainer.seed_sharding is not None:
            shapes = trainer.seed_sharding.placed_shapes(shapes)
        play_seeds.lower(
            trainer, *shapes, num_episodes=num_episodes, max_steps=MAX_STEPS, explore=False
        ).compile()


def evaluation_keys(key: jax.Array, num_seeds: int) -> jax.Array:
    """Make keys `[S]` for evaluations, which a training of this key does not use."""
    return jax.random.split(evaluation_key(key, num_seeds), num_seeds)


def evaluation_key(key: jax.Array, num_seeds: int, number: int = 0) -> jax.Array:
    """Make a key for an evaluation, which a training of this key does not use.

    Args:
      key: of the experiment, before it is split.
      num_seeds: `S`; the keys of the seeds are folded from the numbers below it.
      number: tells evaluations of different kinds apart.
    """
    if jnp.ndim(key):
        raise TriglotError(
            "the experiment has the keys of its seeds, and an evaluation needs others: give keys=, "
            "such as jax.random.split(jax.random.key(1), num_seeds)."
        )
    return jax.random.fold_in(key, num_seeds + number)


def updates_of(state: RunnerState) -> int:
    """Read the updates done from the states `[S, ...]`."""
    return int(on_host(state.num_updates)[0])


def _split(key: jax.Array, num_seeds: int) -> jax.Array:
    """Make the key of each seed; keys `[S]` are returned as they are."""
    return key if jnp.ndim(key) else jax.random.split(key, num_seeds)


def _keys_of_seeds(keys: jax.Array, num_seeds: int) -> int:
    """Count the keys, one for each seed."""
    count = keys.shape[0]
    if num_seeds not in (1, count) or not count:
        raise TriglotError(
            f"key has the keys of {counted(count, 'seed')}, got num_seeds={num_seeds}: give one "
            "key, or as many as seeds."
        )
    return count


def _members(population: object, num_seeds: int) -> int:
    """Make the members of a population the seeds."""
    if not isinstance(population, Population):
        raise TriglotError(
            f"population must be a triglot.Population, got {kind_of(population)}: give "
            "triglot.Population(size=32, perturb=['learning_rate'])."
        )
    if num_seeds not in (1, population.size):
        raise TriglotError(
            f"num_seeds is the size of the population, {population.size}, got {num_seeds}: leave "
            "it out."
        )
    return population.size
