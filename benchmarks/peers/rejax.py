"""rejax (https://github.com/keraJLi/rejax): PPO, DQN and SAC in one compiled program each.

Its algorithms evaluate during training; an `eval_callback` that does nothing removes that.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from gymnax.wrappers.compat import LegacyStepAPIWrapper

from .contender import Contender, NotInstalled, compile_one_program, version_of

PATCHES = (
    "environments wrapped in gymnax's LegacyStepAPIWrapper: rejax unpacks five values from step, "
    "and gymnax 1.x returns six",
)


class FiveValues(LegacyStepAPIWrapper):
    """The wrapper, which recurses without end where rejax copies its options."""

    def __deepcopy__(self, memo: Any) -> "FiveValues":
        return self


def contender(
    algorithm: str, env_id: str, total_steps: int, options: Mapping[str, Any]
) -> Contender:
    """Build rejax's program.

    Args:
      algorithm: `ppo`, `dqn` or `sac`.
      env_id: of gymnax.
      total_steps: environment steps of each seed.
      options: of `create`; `q_network` replaces the fields of DQN's network, whose sizes rejax
        does not take as an option.

    Raises:
      NotInstalled: if rejax is not installed.
    """
    try:
        library: Any = importlib.import_module("rejax")
    except ImportError as error:
        raise NotInstalled("pip install --no-deps rejax") from error
    env, env_params = gymnax.make(env_id)
    options = dict(options)
    q_network = options.pop("q_network", None)
    algo = library.get_algo(algorithm).create(
        env=FiveValues(env),
        env_params=env_params,
        total_timesteps=total_steps,
        eval_freq=total_steps,
        skip_initial_evaluation=True,
        **options,
    )
    algo = algo.replace(eval_callback=lambda algo, state, rng: ())
    if q_network is not None:
        algo = algo.replace(agent=algo.agent.clone(**q_network))

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
        version=version_of("rejax"),
        patches=PATCHES,
    )
