"""Record one batch of each algorithm from a half-trained triglot agent.

    python -m benchmarks.implementations.recording

writes `batch.npz` beside this file, which the comparison reads. Episodes end after 100 steps, so
that there are time limits among them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

import triglot
from triglot.core.agent import Trajectory
from triglot.core.environment import Environment
from triglot.core.loop.rollout import rollout
from triglot.core.loop.state import RunnerState
from triglot.core.network import Variables
from triglot.core.networks.heads import merge_heads
from triglot.core.rl.minibatches import flatten
from triglot.core.rl.replay import ReplayState, Step
from triglot.core.types import AnyAgentState, Obs
from triglot.rl import VectorEnvironment

FILE = Path(__file__).parent / "batch.npz"
CARTPOLE, PENDULUM = "gymnax:CartPole-v1,max_steps_in_episode=100", "gymnax:Pendulum-v1"
ROWS = 256


def half_trained(name: str, env: Environment, total_steps: int) -> tuple[Any, RunnerState]:
    """Train an agent for half of a run.

    Returns:
      The agent, and its runner state.
    """
    agent: Any = triglot.make_agent(name, env, config={"hidden_sizes": (16, 16)})
    experiment = triglot.Experiment(agent, env, key=jax.random.key(0), total_steps=total_steps)
    state = experiment.start()
    for chunk in experiment.chunks(state, until=experiment.num_updates // 2):
        state = chunk.runner_states
    return agent, jax.tree.map(lambda each: each[0], state)


def record_ppo() -> dict[str, np.ndarray]:
    """Record a rollout, its advantages, and a step of the optimizer one update later."""
    env = triglot.make_env(CARTPOLE)
    agent, state = half_trained("ppo", env, 40_960)
    vector = VectorEnvironment(env, agent.num_envs)
    _, trajectory, _ = rollout(agent, vector, state, jax.random.key(1))
    before = state.agent
    after, _ = agent.update(before, trajectory, jax.random.key(2))
    variables = before.learner.variables
    value, next_value = agent.values(variables, trajectory)
    log_prob = agent.behaviour(trajectory).log_prob(trajectory.extras["raw"])
    _, advantage, target = agent.estimate(variables, trajectory, 0.99, 0.95)
    outputs, _ = agent.network.apply(after.learner.variables, flatten(trajectory.obs))
    heads = merge_heads(outputs)
    loss = {
        "logits": heads["logits"],
        "value": heads["value"],
        "action": flatten(trajectory.action),
        "old_log_prob": flatten(log_prob),
        "old_value": flatten(value),
        "advantage": flatten(advantage),
        "target": flatten(target),
    }
    gae = {
        "reward": trajectory.reward,
        "value": value,
        "last_value": next_value[-1],
        "final_value": next_value,
        "terminated": trajectory.terminated.astype(jnp.float32),
        "truncated": trajectory.truncated.astype(jnp.float32),
    }
    return (
        named("ppo.loss", loss)
        | named("ppo.gae", gae)
        | named("ppo.optimizer", optimizer_arrays(agent, after, trajectory))
    )


def record_continuous_ppo() -> dict[str, np.ndarray]:
    """Record samples of continuous actions, and what the networks return one update later."""
    env = triglot.make_env(PENDULUM)
    agent, state = half_trained("ppo", env, 40_960)
    _, trajectory, _ = rollout(agent, VectorEnvironment(env, agent.num_envs), state,
                               jax.random.key(1))  # fmt: skip
    before = state.agent
    after, _ = agent.update(before, trajectory, jax.random.key(2))
    trajectory, _ = before.normalizer.trajectory(trajectory, before.hyper.discount)
    samples = agent._prepare(before, trajectory)
    outputs, _ = agent.network.apply(after.learner.variables, samples.obs)
    heads = merge_heads(outputs)
    batch = {name: heads[name] for name in ("mean", "log_std", "value")} | {
        "action": samples.action,
        "old_log_prob": samples.log_prob,
        "old_value": samples.value,
        "advantage": samples.advantage,
        "target": samples.target,
    }
    return named("ppo.continuous", {name: array[:ROWS] for name, array in batch.items()})


def optimizer_arrays(
    agent: Any, state: AnyAgentState, trajectory: Trajectory
) -> dict[str, jax.Array]:
    """Return parameters, gradients of the loss and Adam's averages, of actor and critic."""
    batch, learner = agent._prepare(state, trajectory), state.learner
    gradients = jax.grad(
        lambda params: agent.loss(
            triglot.nn.Variables(params=params, state=learner.variables.state), batch,
            jax.random.key(0), state.hyper,
        )[0]
    )(learner.variables.params)  # fmt: skip
    trees = {
        "": learner.variables.params,
        "grad_": gradients,
        "mean_": optax.tree.get(learner.opt_state, "mu"),
        "square_": optax.tree.get(learner.opt_state, "nu"),
    }
    return {
        f"{prefix}{part}": ravel_pytree(tree[part])[0]
        for prefix, tree in trees.items()
        for part in ("actor", "critic")
    }


def record_dqn() -> dict[str, np.ndarray]:
    """Record a batch of replayed steps with what the networks return."""
    env = triglot.make_env(CARTPOLE)
    agent, state = half_trained("dqn", env, 40_000)
    learned = state.agent
    steps, slot = learned.replay.steps, _slots(learned.replay)
    obs, next_obs = steps.obs[slot], steps.next_obs[slot]
    online = learned.learner.variables

    def q(variables: Variables, inputs: Obs) -> jax.Array:
        return agent.q_values(variables, inputs, learned.hyper)

    batch = {
        "q": q(online, obs),
        "next_q": q(online, next_obs),
        "next_target_q": q(learned.target, next_obs),
        "action": steps.action[slot],
        **_ends(steps, slot),
    }
    return named("dqn.loss", batch)


def record_sac() -> dict[str, np.ndarray]:
    """Record a batch of replayed steps with what actor and critics return."""
    env = triglot.make_env(PENDULUM)
    agent, state = half_trained("sac", env, 20_000)
    learned = state.agent
    steps, slot = learned.replay.steps, _slots(learned.replay)
    obs, next_obs = steps.obs[slot], steps.next_obs[slot]
    actor = learned.learners["actor"].variables
    critic = learned.learners["critic"].variables

    def drawn(inputs: Obs, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        policy, _ = agent.policy(actor, inputs)
        raw = policy.sample(key)
        return jnp.tanh(raw), policy.squashed_log_prob(raw)

    action, log_prob = drawn(obs, jax.random.key(3))
    next_action, next_log_prob = drawn(next_obs, jax.random.key(4))
    log_temperature = learned.learners["temperature"].variables.params
    critic_batch = {
        "q": agent.q(critic, obs, steps.action[slot])[0],
        "next_target_q": agent.q(learned.target, next_obs, next_action)[0],
        "next_log_prob": next_log_prob,
        "log_temperature": log_temperature,
        **_ends(steps, slot),
    }
    actor_batch = {
        "log_prob": log_prob,
        "q": agent.q(critic, obs, action)[0],
        "log_temperature": log_temperature,
    }
    temperature_batch = {"log_temperature": log_temperature, "log_prob": log_prob}
    return (
        named("sac.critic", critic_batch)
        | named("sac.actor", actor_batch)
        | named("sac.temperature", temperature_batch)
    )


def _slots(replay: ReplayState) -> jax.Array:
    """Draw slots of a replay, every tenth of them a time limit, which are rare otherwise."""
    size = int(replay.size)
    slots = jax.random.randint(jax.random.key(5), (ROWS,), 0, size)
    limits = np.flatnonzero(np.asarray(replay.steps.truncated[:size]))
    chosen = limits[: ROWS // 10]
    return slots.at[: len(chosen)].set(jnp.asarray(chosen))


def _ends(steps: Step, slot: jax.Array) -> dict[str, jax.Array]:
    return {
        "reward": steps.reward[slot],
        "terminated": steps.terminated[slot].astype(jnp.float32),
        "truncated": steps.truncated[slot].astype(jnp.float32),
    }


def named(part: str, arrays: Mapping[str, jax.Array]) -> dict[str, np.ndarray]:
    """Put a part's name before those of its arrays."""
    return {f"{part}/{name}": np.asarray(array) for name, array in arrays.items()}


def read() -> dict[str, dict[str, np.ndarray]]:
    """Read the recorded batches, by part and name."""
    batches: dict[str, dict[str, np.ndarray]] = {}
    with np.load(FILE) as file:
        for name in file.files:
            part, _, argument = name.partition("/")
            batches.setdefault(part, {})[argument] = file[name]
    return batches


def main() -> None:
    """Record all batches."""
    arrays: dict[str, np.ndarray] = {}
    for record in (record_ppo, record_continuous_ppo, record_dqn, record_sac):
        arrays |= record()
        np.savez_compressed(FILE, **arrays)  # type: ignore[arg-type]
    for part, arrays in read().items():
        ends = {n: float(a.sum()) for n, a in arrays.items() if n in ("terminated", "truncated")}
        print(part, {name: array.shape for name, array in arrays.items()}, ends)


if __name__ == "__main__":
    main()
