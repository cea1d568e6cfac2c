"""rejax (https://github.com/keraJLi/rejax): each of its algorithms in one compiled program.

Its algorithms evaluate during training; an `eval_callback` that does nothing removes that.
"""

import importlib.metadata
from collections.abc import Mapping
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from gymnax.wrappers.compat import LegacyStepAPIWrapper

from triglot.core.types import PyTree

from .contender import Contender, NotInstalled, compile_one_program
from .row import Row

PATCHES = (
    "environments wrapped in gymnax's LegacyStepAPIWrapper: rejax unpacks five values from step, "
    "and gymnax 1.x returns six",
)
# The networks of each algorithm whose sizes have no option.
SIZED = {"dqn": ("agent",), "pqn": ("agent",), "td3": ("actor", "critic")}


class FiveValues(LegacyStepAPIWrapper):
    """The wrapper, which recurses without end where rejax copies its options."""

    def __deepcopy__(self, memo: object) -> "FiveValues":
        return self


def contender(row: Row, total_steps: int, folder: object = None) -> Contender:
    """Build rejax's program.

    Args:
      row: of PPO, DQN, IQN, PQN, SAC or TD3, on gymnax; of PPO on Navix.
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
    env, env_params = _environment(row)
    options = {**row.given("rejax"), **_own_options(algorithm, given, total_steps)}
    if algorithm == "iqn":
        del options["ddqn"]  # it has no other choice
    if algorithm == "td3":
        options = _td3_options(options, given, env.action_space(env_params).high)
    algo = library.get_algo(algorithm).create(
        env=env,
        env_params=env_params,
        total_timesteps=total_steps,
        eval_freq=total_steps,
        skip_initial_evaluation=True,
        **options,
    )
    algo = algo.replace(eval_callback=lambda algo, state, rng: ())
    for part in SIZED.get(algorithm, ()):  # whose sizes rejax does not take as an option
        sized = getattr(algo, part).clone(hidden_layer_sizes=given["hidden_sizes"])
        algo = algo.replace(**{part: sized})

    def greedy(state: PyTree, obs: jax.Array) -> jax.Array:
        if algorithm in ("dqn", "pqn"):
            return jnp.argmax(algo.agent.apply(state.q_ts.params, obs), axis=-1)
        if algorithm == "iqn":
            key = jax.random.PRNGKey(0)
            return algo.agent.apply(state.q_ts.params, obs, key, method="best_action")
        if algo.normalize_observations:
            obs = algo.normalize_obs(state.obs_rms_state, obs)
        if algorithm == "td3":
            return algo.actor.apply(state.actor_ts.params, obs)
        distribution = algo.actor.apply(state.actor_ts.params, obs, method="_action_dist")
        if algorithm == "ppo":
            return jnp.argmax(distribution.logits, axis=-1)
        return algo.actor.action_loc + jnp.tanh(distribution.mean()) * algo.actor.action_scale

    return Contender(
        compile=compile_one_program(algo.train, lambda trained: trained[0]),
        act=greedy,
        version=importlib.metadata.version("rejax"),
        patches=PATCHES if row.suites[0] == "gymnax" else (),
    )


def _environment(row: Row) -> tuple[Any, Any]:
    if row.suites[0] == "gymnax":
        env, params = gymnax.make(row.env_id)
        return FiveValues(env), params
    from rejax.compat.navix2gymnax import create_navix  # pyright: ignore[reportMissingImports]

    return create_navix(row.env_id.partition(",")[0])


def _own_options(algorithm: str, given: Mapping[str, Any], total_steps: int) -> dict[str, Any]:
    """Translate what has no option of the same meaning."""
    options: dict[str, Any] = {}
    if algorithm != "pqn":
        options["agent_kwargs"] = {"activation": "tanh" if algorithm == "ppo" else "relu"}
    if "tau" in given:
        options["polyak"] = 1.0 - given["tau"]
    if "target_update_period" in given:
        period = given["target_update_period"]
        options["target_update_freq"] = period * given["num_envs"] if period > 1 else 1
    if "epsilon_decay_steps" in given:
        options |= {
            "eps_start": given["epsilon"],
            "eps_end": given["epsilon_end"],
            "exploration_fraction": given["epsilon_decay_steps"] / total_steps,
        }
    if algorithm == "dqn":
        options["agent"] = "DuelingQNetwork" if given["dueling"] else "QNetwork"
    if algorithm in ("ppo", "iqn") and "hidden_sizes" in given:
        options["agent_kwargs"]["hidden_layer_sizes"] = given["hidden_sizes"]
    return options


def _td3_options(options: dict[str, Any], given: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Scale the noise to actions within [-scale, scale]; one rollout is `policy_delay` steps."""
    made = {**options, "num_epochs": given["num_gradient_steps"] // given["policy_delay"]}
    del made["num_steps"]
    for part in ("actor_kwargs", "critic_kwargs"):
        made[part] = dict(made["agent_kwargs"])
    del made["agent_kwargs"]
    for name in ("exploration_noise", "target_noise", "target_noise_clip"):
        made[name] = given[name] * scale
    return made
