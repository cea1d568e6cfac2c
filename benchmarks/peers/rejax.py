"""rejax (https://github.com/keraJLi/rejax): PPO, DQN and SAC in one compiled program each.

Its algorithms evaluate during training; an `eval_callback` that does nothing removes that.
"""

import importlib.metadata
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from gymnax.wrappers.compat import LegacyStepAPIWrapper

from .contender import Contender, NotInstalled, compile_one_program
from .rows import Row

PATCHES = (
    "environments wrapped in gymnax's LegacyStepAPIWrapper: rejax unpacks five values from step, "
    "and gymnax 1.x returns six",
)


class FiveValues(LegacyStepAPIWrapper):
    """The wrapper, which recurses without end where rejax copies its options."""

    def __deepcopy__(self, memo: Any) -> "FiveValues":
        return self


def contender(row: Row, total_steps: int, folder: object = None) -> Contender:
    """Build rejax's program.

    Args:
      row: of PPO, DQN or SAC, on gymnax.
      total_steps: environment steps of each seed.
      folder: unused.

    Raises:
      NotInstalled: if rejax is not installed.
    """
    try:
        library: Any = importlib.import_module("rejax")
    except ImportError as error:
        raise NotInstalled("pip install --no-deps rejax") from error
    algorithm, given = row.algorithm, row.setting
    env, env_params = gymnax.make(row.env_id)
    options = row.given("rejax")
    options["agent_kwargs"] = {"activation": "tanh" if algorithm == "ppo" else "relu"}
    if algorithm != "ppo":
        options["polyak"] = 1.0 - given["tau"]
    if algorithm == "dqn":
        period = given["target_update_period"]
        options |= {
            "agent": "DuelingQNetwork" if given["dueling"] else "QNetwork",
            "target_update_freq": period * given["num_envs"] if period > 1 else 1,
            "eps_start": 1.0,
            "eps_end": 0.05,
            "exploration_fraction": given["epsilon_decay_steps"] / total_steps,
        }
    algo = library.get_algo(algorithm).create(
        env=FiveValues(env),
        env_params=env_params,
        total_timesteps=total_steps,
        eval_freq=total_steps,
        skip_initial_evaluation=True,
        **options,
    )
    algo = algo.replace(eval_callback=lambda algo, state, rng: ())
    if algorithm == "dqn":  # whose sizes rejax does not take as an option
        algo = algo.replace(agent=algo.agent.clone(hidden_layer_sizes=given["hidden_sizes"]))

    def greedy(state: Any, obs: jax.Array) -> jax.Array:
        if algorithm == "dqn":
            return jnp.argmax(algo.agent.apply(state.q_ts.params, obs), axis=-1)
        if algo.normalize_observations:
            obs = algo.normalize_obs(state.obs_rms_state, obs)
        distribution = algo.actor.apply(state.actor_ts.params, obs, method="_action_dist")
        if algorithm == "ppo":
            return jnp.argmax(distribution.logits, axis=-1)
        return algo.actor.action_loc + jnp.tanh(distribution.mean()) * algo.actor.action_scale

    return Contender(
        compile=compile_one_program(algo.train, lambda trained: trained[0]),
        act=greedy,
        version=importlib.metadata.version("rejax"),
        patches=PATCHES,
    )
