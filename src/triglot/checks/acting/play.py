"""Let an agent act and learn with frozen parameters, and keep what its networks computed."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ...core.agent import PolicyInput, PolicyOutput, Trajectory
from ...core.learner import LearnerState
from ...core.loop.self_play import renewed
from ...core.loop.state import RunnerState, UpdateKeys, scheduled, update_keys
from ...core.loop.trainer import Trainer
from ...core.network import Variables
from ...core.types import AnyAgentState, AnyHyperparams, Key, PyTree
from ..purity import FAST_COMPILATION
from .differences import Difference
from .recorder import ACT, LEARN, NEXT, Application, Forbidden, Recorder, rows_of


def frozen(hyper: AnyHyperparams) -> optax.GradientTransformation:
    """Leave the parameters unchanged, and sum the gradients in the optimizer's state."""
    del hyper

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, PyTree]:
        del params
        return jax.tree.map(jnp.zeros_like, updates), jax.tree.map(jnp.add, state, updates)

    return optax.GradientTransformation(lambda params: jax.tree.map(jnp.zeros_like, params), update)


def at_rest(hyper: AnyHyperparams) -> AnyHyperparams:
    """Set every learning rate to 0."""
    if not dataclasses.is_dataclass(hyper) or isinstance(hyper, type):
        return hyper
    names = [field.name for field in dataclasses.fields(hyper) if "learning_rate" in field.name]
    kept = [name for name in names if getattr(hyper, name) is not None]
    return replace(hyper, **dict.fromkeys(kept, jnp.zeros((), jnp.float32)))


NOTHING = Application("", "", 0, np.zeros((0, 0), np.float32), None, {})


@dataclass
class Step:
    """One step of `N` environments.

    Attributes:
      first: bool `[N]`.
      forbidden, next_forbidden: bool `[N, A]`; None without masks.
      carry: what `act` was given, leaves `[N, ...]` as rows; None without.
      initial: the carry at an episode's start, as rows.
      acted, after: the networks' applications in `act`, on `obs` and on `next_obs`.
      main, next_main: those of them that read the observations.
    """

    first: np.ndarray
    forbidden: np.ndarray | None
    next_forbidden: np.ndarray | None
    carry: np.ndarray | None
    initial: np.ndarray | None
    acted: list[Application]
    after: list[Application]
    main: Application
    next_main: Application


@dataclass(frozen=True)
class Update:
    """One update: the steps before it, and what it computed.

    Attributes:
      steps: `T` of them, the newest of the loss's batch.
      given: the agent's state before, the trajectory and the key.
      state: the agent's state after it.
      recorded: whether the following is kept.
      applied: the networks' applications.
      differences: of stored and computed numbers, in the losses.
    """

    steps: list[Step]
    given: tuple[AnyAgentState, Trajectory, Key]
    state: AnyAgentState
    recorded: bool
    applied: list[Application]
    differences: list[Difference]


class Play:
    """An agent in its training loop, one step after the other, with frozen parameters.

    The environments, their resets, the keys and the opponent of a self-play are the trainer's.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.recorder = Recorder()
        agent: Any = trainer.agent
        changed: dict[str, Any] = {"network": self.recorder.network(agent.network)}
        if "optimizer" in {field.name for field in dataclasses.fields(agent)}:
            changed["optimizer"] = frozen
        self.agent: Any = replace(agent, **changed)
        self.trainer = replace(trainer, agent=self.agent)
        self.stores: list[str] = []
        self.inputs: Any = None

    @property
    def num_steps(self) -> int:
        """Steps in one trajectory, `T`."""
        return 1 if self.agent.online else self.agent.rollout_length

    def start(self, key: jax.Array) -> RunnerState:
        """Initialize, with learning rates of 0."""
        state = jax.jit(self.trainer.init, compiler_options=FAST_COMPILATION)(key)
        return replace(state, agent=self.rest(state.agent))

    def rest(self, state: AnyAgentState) -> AnyAgentState:
        """Set the learning rates in an agent's state to 0."""
        if hasattr(state, "hyper"):
            return replace(state, hyper=at_rest(state.hyper))
        if isinstance(state, dict) and "hyper" in state:
            return {**state, "hyper": at_rest(state["hyper"])}
        return state

    @cached_property
    def _begin(self) -> Callable[..., RunnerState]:
        def begin(runner: RunnerState, keys: UpdateKeys) -> RunnerState:
            env, opponent = renewed(self.agent, self.trainer.env, runner)
            env_state = env.refresh(runner.env, keys.pool)
            if self.agent.explores_by_parameters:
                env_state = env.restart(env_state, keys.start)
            state = replace(runner, env=env_state, opponent=opponent)
            state, _ = scheduled(state, self.trainer.steps_per_update)
            return replace(state, agent=self.rest(state.agent))

        return jax.jit(begin, compiler_options=FAST_COMPILATION)

    @cached_property
    def _step(self) -> Callable[..., tuple]:
        agent, record = self.agent, self.recorder

        def step(runner: RunnerState, key: jax.Array) -> tuple:
            act_key, env_key = jax.random.split(key)
            env, _ = renewed(agent, self.trainer.env, runner)
            inputs = PolicyInput.of(agent, runner.env, runner.env.first)
            with record.phase(ACT):
                out = agent.act(runner.agent, runner.carry, inputs, act_key, explore=True)
            self.stores = sorted(out.extras)
            env_state, step_result = env.step(runner.env, out.action, env_key)
            follows = replace(
                inputs,
                obs=step_result.next_obs,
                first=jnp.zeros_like(inputs.first),
                action_mask=step_result.next_action_mask,
            )
            with record.phase(NEXT):
                agent.act(runner.agent, out.carry, follows, act_key, explore=True)
            recorded = {
                "obs": inputs.obs,
                "first": inputs.first,
                "action_mask": inputs.action_mask,
                "action": out.action,
                "reward": step_result.reward,
                "terminated": step_result.terminated,
                "truncated": step_result.truncated,
                "next_obs": step_result.next_obs,
                "next_action_mask": step_result.next_action_mask,
                "extras": out.extras,
            }
            initial = agent.initial_carry(runner.agent, self.trainer.env.num_envs)
            after = replace(runner, env=env_state, carry=out.carry)
            return after, recorded, initial

        return jax.jit(step, compiler_options=FAST_COMPILATION)

    @cached_property
    def _update(self) -> Callable[..., tuple]:
        def update(
            state: AnyAgentState,
            trajectory: Trajectory,
            key: jax.Array,
            forbidden: Forbidden | None,
        ) -> tuple:
            with self.recorder.phase(LEARN, forbidden):
                return self.agent.update(state, trajectory, key)

        return jax.jit(update, compiler_options=FAST_COMPILATION)

    @cached_property
    def _look(self) -> Callable[..., PolicyOutput]:
        def look(
            state: AnyAgentState, carry: PyTree, inputs: PolicyInput, key: jax.Array
        ) -> PolicyOutput:
            with self.recorder.phase(ACT):
                return self.agent.act(state, carry, inputs, key, explore=True)

        return jax.jit(look, compiler_options=FAST_COMPILATION)

    def run(
        self, runner: RunnerState, num_updates: int, recorded: Callable[[int], bool]
    ) -> Iterator[Update]:
        """Act and learn for some updates; `recorded(number)` says which of them to record."""
        done = 0
        while done < num_updates:
            keys = update_keys(runner.key, runner.num_updates)
            runner = self._begin(runner, keys)
            length = self.agent.rollout_length
            step_keys = jax.random.split(keys.rollout, length)
            learn_keys = jax.random.split(keys.learn, length)
            for start in range(0, length, self.num_steps):
                now = range(start, start + self.num_steps)
                carry, rows, steps = runner.carry, [], []
                for time in now:
                    with self.recorder.listen():
                        before = runner
                        runner, recorded_step, initial = self._step(runner, step_keys[time])
                    rows.append(recorded_step)
                    self.inputs = PolicyInput.of(self.agent, before.env, before.env.first)
                    steps.append(self._kept(before.carry, initial, recorded_step))
                stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
                trajectory = Trajectory(**stacked, carry=carry).checked()
                key = learn_keys[start] if self.agent.online else keys.learn
                arguments = (runner.agent, trajectory, key)
                main, mask = steps[0].main, steps[0].forbidden
                nothing = None if mask is None else Forbidden.of(main.inputs[:0], mask[:0])
                with self.recorder.listen():
                    state, _ = self._update(*arguments, nothing)
                    jax.block_until_ready(state)
                kept = recorded(done)
                yield Update(
                    steps,
                    arguments,
                    state,
                    recorded=kept,
                    applied=self.recorder.applications if kept else [],
                    differences=self.recorder.differences if kept else [],
                )
                runner = replace(runner, agent=state)
                done += 1
                if done >= num_updates:
                    return
            runner = replace(runner, num_updates=runner.num_updates + 1)

    def _kept(self, carry: PyTree, initial: PyTree, recorded: dict[str, PyTree]) -> Step:
        applications = self.recorder.applications

        def forbidden(mask: jax.Array | None) -> np.ndarray | None:
            return None if mask is None else ~np.asarray(mask)

        has_carry, size = bool(jax.tree.leaves(carry)), recorded["first"].shape[0]
        acted, after = (
            [application for application in applications if application.phase == phase]
            for phase in (ACT, NEXT)
        )
        return Step(
            first=np.asarray(recorded["first"]),
            forbidden=forbidden(recorded["action_mask"]),
            next_forbidden=forbidden(recorded["next_action_mask"]),
            carry=np.asarray(rows_of(carry)) if has_carry else None,
            initial=np.asarray(rows_of(initial)) if has_carry else None,
            acted=acted,
            after=after,
            main=first_of(acted, size) or NOTHING,
            next_main=first_of(after, size) or NOTHING,
        )

    def gradients_with(self, update: Update, forbidden: Forbidden) -> dict[str, np.ndarray]:
        """Repeat an update with changed outputs; return the sums of the gradients."""
        state, _ = self._update(*update.given, forbidden)
        return gradients(state)

    def look(self, state: AnyAgentState, obs: PyTree) -> np.ndarray:
        """Let a state act on observations `[K, N, ...]`; return what the network reads, as rows."""
        num_envs = self.trainer.env.num_envs
        carry = self.agent.initial_carry(state, num_envs)
        rows = []
        for row in range(jax.tree.leaves(obs)[0].shape[0]):
            row_obs = jax.tree.map(lambda leaf, row=row: leaf[row], obs)
            inputs = replace(self.inputs, obs=row_obs)
            with self.recorder.listen():
                jax.block_until_ready(self._look(state, carry, inputs, jax.random.key(row)))
            application = first_of(self.recorder.applications, num_envs)
            assert application is not None  # as in each step
            rows.append(application.inputs)
        return np.stack(rows)


def first_of(applications: list[Application], num_envs: int) -> Application | None:
    """Return the first application in the program to `N` rows, which reads the observations.

    Others may come before it, such as IQN's network of quantile fractions, or a network for each
    environment alone; None if no application has a row for each environment.
    """
    whole = [application for application in applications if application.inputs.shape[0] == num_envs]
    return min(whole, key=lambda application: application.site, default=None)


def moved(before: AnyAgentState, after: AnyAgentState) -> bool:
    """Whether parameters in an agent's state have changed, by more than a target network rounds."""

    def params(state: AnyAgentState) -> list[np.ndarray]:
        nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, Variables))
        params_of_nodes = [node.params for node in nodes if isinstance(node, Variables)]
        return [np.asarray(leaf) for leaf in jax.tree.leaves(params_of_nodes)]

    # A target network that equals the parameters is averaged with them in each gradient step, and
    # rounded: by up to 1e-7 relative to its size each time.
    return any(
        not np.allclose(*pair, 1e-5, 1e-6)
        for pair in zip(params(before), params(after), strict=True)
    )


def gradients(state: AnyAgentState) -> dict[str, np.ndarray]:
    """Collect the optimizer states of an agent's state, which are sums of gradients."""

    def is_learner(node: object) -> bool:
        return isinstance(node, LearnerState)

    learners = [node for node in jax.tree.leaves(state, is_leaf=is_learner) if is_learner(node)]
    return {
        f"{index}.{number}": np.asarray(leaf)
        for index, learner in enumerate(learners)
        for number, leaf in enumerate(jax.tree.leaves(learner.opt_state))
    }
