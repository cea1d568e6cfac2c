"""gymnax: its environments, without their automatic reset.

Source: Lange (2022), "gymnax: A JAX-based Reinforcement Learning Environment Library",
https://github.com/RobertTLange/gymnax, version 1.x.
"""

import functools
import inspect
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ..core.environment import Environment, TimeStep, first_step
from ..core.errors import TriglotError, require, unknown
from ..core.specs import Box, Dict, Spec
from . import check_options
from .gymnasium import spec_from_space

PyTree: TypeAlias = Any
Params: TypeAlias = tuple[tuple[str, Hashable], ...]

# Left out of `names`, with the reason.
_EXCLUDED = {"MNISTBandit-bsuite": "it downloads its images when it is made"}
# Observations of these leave the bounds that their spaces declare (a negative reward, a context of
# -1, a time that is negative or rounded to just below 0), so their specs declare none.
_OUT_OF_BOUNDS = {
    "GaussianBandit-misc",
    "MemoryChain-bsuite",
    "MetaMaze-misc",
    "UmbrellaChain-bsuite",
}


def names() -> list[str]:
    """List the ids that `make` takes, those registered by the user included."""
    return [i for i in require("gymnax", "gymnax").registered_envs if i not in _EXCLUDED]


def make(env_id: str, **params: Hashable) -> Environment:
    """Make one of gymnax's environments.

    Args:
      env_id: the id that gymnax knows it by, e.g. `"CartPole-v1"`.
      params: what departs from the defaults: fields of the environment's `EnvParams`, such as
        `max_steps_in_episode`, and arguments of its constructor, such as `size` of DeepSea.

    Raises:
      MissingExtra: if gymnax is not installed.
      TriglotError: if the id or a parameter is unknown, or a parameter cannot be hashed.
    """
    if env_id in _EXCLUDED:
        raise TriglotError(f"gymnax's {env_id} is not offered: {_EXCLUDED[env_id]}.")
    if env_id not in names():
        raise unknown("gymnax environment", env_id, names())
    for name, value in params.items():
        try:
            hash(value)
        except TypeError:
            raise TriglotError(
                f"parameter {name!r} of gymnax:{env_id} must be a number, a string or a tuple, so "
                f"that the environment can be hashed; got a {type(value).__name__}."
            ) from None
    env = Gymnax(env_id, tuple(sorted(params.items())))
    _library(env.env_id, env.params)  # so that a wrong parameter fails here, not under `jit`
    return env


@dataclass(frozen=True)
class Gymnax:
    """An environment of gymnax; build it with `make`.

    An episode ends as terminated where the task ended and as truncated where only gymnax's own
    limit, `max_steps_in_episode`, cut it: DeepSea sets both flags and counts as terminated.
    """

    env_id: str
    params: Params = ()

    @property
    def name(self) -> str:
        return f"gymnax:{self.env_id}"

    @property
    def obs_spec(self) -> Spec:
        return _library(self.env_id, self.params).obs_spec

    @property
    def action_spec(self) -> Spec:
        return _library(self.env_id, self.params).action_spec

    def reset(self, key: jax.Array) -> TimeStep:
        env, params, *_ = _library(self.env_id, self.params)
        with _library_promotion():
            obs, state = env.reset_env(key, params)
        return first_step(_strong(state), _strong(obs))

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        env, params, *_ = _library(self.env_id, self.params)
        with _library_promotion():
            obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
            truncated = env.is_truncated(state, params)
        terminated = jnp.asarray(terminated, bool)
        return TimeStep(
            state=_strong(state),
            obs=_strong(obs),
            reward=jnp.asarray(reward, jnp.float32),
            terminated=terminated,
            truncated=jnp.asarray(truncated, bool) & ~terminated,
        )


class _Library(NamedTuple):
    env: Any  # gymnax's own environment
    params: Any  # its EnvParams
    obs_spec: Spec
    action_spec: Spec


@functools.cache
def _library(env_id: str, params: Params) -> _Library:
    # The first call may come while a program is traced: constants must not become tracers then.
    with jax.ensure_compile_time_eval(), _library_promotion():
        gymnax = require("gymnax", "gymnax")
        env, defaults = gymnax.make(env_id)
        in_params = {field.name for field in fields(defaults)}
        in_constructor = {
            name
            for name, parameter in inspect.signature(type(env)).parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        }
        given = dict(params)
        check_options(f"gymnax:{env_id}", given, in_params | in_constructor)
        env, defaults = gymnax.make(env_id, **{n: given[n] for n in given.keys() & in_constructor})
        env_params = defaults.replace(
            **{n: _like(getattr(defaults, n), given[n]) for n in given.keys() & in_params}
        )
        to_gymnasium = gymnax.environments.spaces.gymnax_space_to_gym_space
        obs_spec = spec_from_space(to_gymnasium(env.observation_space(env_params)))
        action_spec = spec_from_space(to_gymnasium(env.action_space(env_params)))
        returned, _ = jax.eval_shape(env.reset_env, jax.random.key(0), env_params)
    obs_spec = _as_returned(obs_spec, returned)
    if env_id in _OUT_OF_BOUNDS and isinstance(obs_spec, Box):
        obs_spec = Box(obs_spec.shape, obs_spec.dtype)
    return _Library(env, env_params, obs_spec, action_spec)


@contextmanager
def _library_promotion() -> Iterator[None]:
    # gymnax mixes dtypes and ranks freely; the user's strict settings hold for the rest of the
    # program, and JAX reads these two while it traces.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def _like(default: Any, value: Any) -> Any:
    return jnp.asarray(value, default.dtype) if isinstance(default, jax.Array) else value


def _as_returned(spec: Spec, returned: Any) -> Spec:
    # Catch and FourRooms declare another dtype than they return.
    if isinstance(spec, Dict):
        return Dict(
            tuple((name, _as_returned(child, returned[name])) for name, child in spec.items)
        )
    return replace(spec, dtype=str(returned.dtype))


def _strong(tree: PyTree) -> PyTree:
    # gymnax starts counters as Python numbers; a scan's carry must keep its types.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), tree)
