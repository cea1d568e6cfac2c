"""XLand-MiniGrid's environments: grid worlds with rules and goals, and ports of MiniGrid's.

Source: Nikulin et al. (2023), "XLand-MiniGrid: Scalable Meta-Reinforcement Learning Environments in
JAX", https://github.com/dunnolab/xland-minigrid, version 0.9.
"""

import os
import warnings
from collections.abc import Hashable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from ..core.environment import TimeStep, first_step
from ..core.errors import TriglotError, check_known, require, user_error_context
from ..core.hyper import check_count
from ..core.specs import Box, Discrete
from ..core.types import EnvState, PyTree, abstract_key
from . import adapting
from .adapting import Adapted, Adapter
from .adapting.options import building

OBSERVATIONS = ("planes", "symbolic")
SIZES = (13, 12)  # tiles and colours


def names() -> list[str]:
    """List the ids that `make` takes, including those registered by the user."""
    return list(require("xminigrid", "xminigrid").registered_environments())


def make(env_id: str, **options: Hashable) -> Adapted:
    """Make one of XLand-MiniGrid's environments.

    An episode is terminated where the goal is reached and truncated after `max_steps`.

    Args:
      env_id: such as `"XLand-MiniGrid-R1-9x9"` or `"MiniGrid-DoorKey-8x8"`.
      options: fields of the environment's parameters, such as `max_steps` or `view_size`;
        `observation`: `planes`, float32 `[V, V, 25]`, 0 or 1 for each tile and colour of the view,
        or `symbolic`, uint8 `[V, V, 2]`; `benchmark`: the rules and goals of XLand's tasks, a name
        such as `trivial-21k`, which is downloaded, or a file; `ruleset`: the number of one task of
        the benchmark, otherwise each episode has one at random.

    Raises:
      MissingExtra: if xminigrid is not installed.
      TriglotError: if the id or an option is unknown, or the benchmark cannot be read.
    """
    adapting.check_name("xminigrid", env_id, names(), {})
    return adapting.adapted("xminigrid", env_id, options, _build)


def _build(env_id: str, options: dict[str, Any]) -> Adapter:
    name, xminigrid = f"xminigrid:{env_id}", require("xminigrid", "xminigrid")
    observation = options.pop("observation", "planes")
    check_known(f"observation of {name}", str(observation), OBSERVATIONS)
    benchmark, ruleset = options.pop("benchmark", None), options.pop("ruleset", None)
    env, defaults = xminigrid.make(env_id)
    (params,) = adapting.changed(name, options, defaults)
    if "max_steps" not in options:  # by default it follows from the size
        registered = xminigrid.registration._REGISTRY[env_id].kwargs
        params = env.default_params(**{**registered, **options})
    if benchmark is None and (ruleset is not None or env_id.startswith("XLand")):
        hint = f"give tasks, as in {name},benchmark=trivial-21k"
        if ruleset is not None:
            raise TriglotError(f"ruleset of {name} is the number of a benchmark's task: {hint}.")
        warnings.warn(f"{name} has no goal, so all its rewards are 0: {hint}.", stacklevel=2)
    tasks = None if benchmark is None else _benchmark(name, str(benchmark))
    if ruleset is not None and tasks is not None:
        check_count(f"ruleset of {name}", ruleset, 0, tasks.num_rulesets() - 1)
        params, tasks = replace(params, ruleset=tasks.get_ruleset(ruleset)), None

    def observe(grid: jax.Array) -> jax.Array:
        return adapting.planes(grid, SIZES) if observation == "planes" else grid

    def reset(key: jax.Array) -> TimeStep:
        task_key, reset_key = jax.random.split(key)
        task = {} if tasks is None else {"ruleset": tasks.sample_ruleset(task_key)}
        started = env.reset(replace(params, **task), reset_key)
        return first_step(started.state, observe(started.observation))

    def step(state: EnvState, action: jax.Array, key: jax.Array) -> TimeStep:
        # XLand's `step` reads the state alone; its end by the limit has the discount 1.
        unread = dict.fromkeys(("step_type", "reward", "discount", "observation"))
        before = types.TimeStep(state=state.replace(key=key), **unread)
        after = env.step(params, before, action)
        return TimeStep(
            state=after.state,
            obs=observe(after.observation),
            reward=after.reward,
            terminated=after.discount == 0,
            truncated=after.last(),
        )

    types = require("xminigrid.types", "xminigrid")
    render = require("xminigrid.rendering.rgb_render", "xminigrid").render
    with building(name, options):
        shape = env.observation_shape(params)
        jax.eval_shape(reset, abstract_key())
    symbolic = Box(shape, "uint8", 0, max(SIZES) - 1)
    return Adapter(
        reset,
        step,
        adapting.planes_spec(shape, SIZES) if observation == "planes" else symbolic,
        Discrete(int(env.num_actions(params))),
        draw=adapting.gif(lambda state: render(state.grid, state.agent, params.view_size)),
        costly_reset=True,
    )


@lru_cache(2)
def _benchmark(name: str, benchmark: str) -> PyTree:
    library = require("xminigrid.benchmarks", "xminigrid")
    if os.path.isfile(benchmark):
        with user_error_context(f"{name}: the benchmark {benchmark!r} cannot be read"):
            return jax.tree.map(jnp.asarray, library.load_benchmark_from_path(benchmark))
    check_known(f"benchmark (or no file) of {name}", benchmark, library.registered_benchmarks())
    with user_error_context(f"{name}: the benchmark {benchmark!r} cannot be downloaded"):
        return jax.tree.map(jnp.asarray, library.load_benchmark(benchmark))
