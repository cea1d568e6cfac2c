"""A wrong shape or dtype is caught in every area whose annotations the tests check."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, TypeCheckError

import triglot
from tests.runtime_types import check_function
from triglot.algorithms.ppo import PPO
from triglot.core.agent import PolicyOutput, Trajectory
from triglot.core.errors import TriglotError
from triglot.core.networks.heads import merge_heads
from triglot.core.rl.distributions import categorical, policy, squashed_gaussian
from triglot.core.rl.losses import clipped_value_loss, explained_variance, gae
from triglot.core.rl.normalize import discounted_sums
from triglot.core.rl.priorities import sample_proportional
from triglot.core.rl.replay import n_step_return
from triglot.core.specs import Box
from triglot.envs import probes

T, N, B = 3, 2, 4


def zeros(shape: int | tuple[int, ...], dtype: Any) -> jax.Array:
    return jnp.asarray(np.zeros(shape, dtype))  # which compiles nothing


FLOAT, INT, BOOL = (partial(zeros, dtype=dtype) for dtype in (np.float32, np.int32, bool))

ROLLOUT: dict[str, Any] = {
    "obs": {"a": FLOAT((T, N, 5)), "b": FLOAT((T, N))},
    "first": BOOL((T, N)),
    "action_mask": BOOL((T, N, 3)),
    "action": INT((T, N)),
    "reward": FLOAT((T, N)),
    "terminated": BOOL((T, N)),
    "truncated": BOOL((T, N)),
    "next_obs": {"a": FLOAT((T, N, 5)), "b": FLOAT((T, N))},
    "next_action_mask": BOOL((T, N, 3)),
    "extras": {"log_prob": FLOAT((T, N))},
    "carry": FLOAT((N, 8)),
}
GAE = (FLOAT((T, N)), BOOL((T, N)), BOOL((T, N)), FLOAT((T, N)), FLOAT((T, N)), 0.9, 0.9)
# Functions with correct arguments.
RIGHT: dict[str, tuple[Callable[..., Any], tuple, dict[str, Any]]] = {
    "gae": (gae, GAE, {}),
    "clipped_value_loss": (clipped_value_loss, (FLOAT(B), FLOAT(B), FLOAT(B), 0.2), {}),
    "explained_variance": (explained_variance, (FLOAT(B), FLOAT(B)), {}),
    "categorical": (categorical, (FLOAT((B, 3)), BOOL((B, 3))), {}),
    "categorical log_prob": (
        lambda action: categorical(FLOAT((B, 3))).log_prob(action),
        (INT(B),),
        {},
    ),
    "squashed_gaussian": (squashed_gaussian, (FLOAT((B, 3)), FLOAT((B, 3))), {}),
    "gaussian log_prob": (
        lambda raw: squashed_gaussian(FLOAT((B, 3)), FLOAT((B, 3))).log_prob(raw),
        (FLOAT((B, 3)),),
        {},
    ),
    "policy": (
        lambda **heads: policy(Box((3,), "float32", -1.0, 1.0), heads),
        (),
        {"mean": FLOAT((B, 3)), "log_std": FLOAT((B, 3))},
    ),
    "discounted_sums": (
        discounted_sums,
        (FLOAT(N), FLOAT((T, N))),
        {"first": BOOL((T, N)), "discount": 0.9},
    ),
    "n_step_return": (n_step_return, (FLOAT((T, B)), BOOL((T, B)), BOOL((T, B)), 0.9), {}),
    "sample_proportional": (sample_proportional, (jnp.array([1.0] * 8), FLOAT(B)), {}),
    "heads": (lambda **heads: merge_heads(heads), (), {"q": FLOAT((B, 3)), "value": FLOAT(B)}),
}
# A wrong value for one argument, given by its position or name.
WRONG = [
    ("gae", 4, FLOAT((T + 1, N))),  # values [T+1], as other libraries take them
    ("gae", 4, FLOAT((T, 1))),
    ("gae", 1, FLOAT((T, N))),  # a flag as a number
    ("clipped_value_loss", 0, FLOAT((B, 1))),  # would broadcast to [B, B]
    ("clipped_value_loss", 2, FLOAT(1)),
    ("explained_variance", 0, FLOAT((1,))),
    ("categorical", 1, FLOAT((B, 3))),
    ("categorical", 1, BOOL((1, 3))),
    ("categorical log_prob", 0, INT(1)),
    ("categorical log_prob", 0, FLOAT(B)),
    ("squashed_gaussian", 1, FLOAT((1, 3))),
    ("gaussian log_prob", 0, FLOAT((B, 1))),
    ("gaussian log_prob", 0, FLOAT((1, 3))),
    ("policy", "log_std", FLOAT((B, 1))),
    ("discounted_sums", 0, FLOAT(1)),
    ("n_step_return", 1, BOOL((T, 1))),
    ("n_step_return", 2, FLOAT((T, B))),
    ("sample_proportional", 1, FLOAT((B, 1))),
    ("heads", "value", FLOAT((1,))),
    ("heads", "value", FLOAT(())),
]  # fmt: skip


@pytest.mark.covering(3)
@pytest.mark.parametrize("name", RIGHT)
def test_correct_arguments_pass(name: str) -> None:
    function, args, kwargs = RIGHT[name]
    function(*args, **kwargs)


@pytest.mark.parametrize(("name", "place", "value"), WRONG)
def test_a_wrong_argument_is_caught(name: str, place: int | str, value: Any) -> None:
    function, args, kwargs = RIGHT[name]
    arguments = {**dict(enumerate(args)), **kwargs}
    assert place in arguments
    arguments[place] = value
    changed = [argument for key, argument in arguments.items() if isinstance(key, int)]
    named = {key: argument for key, argument in arguments.items() if isinstance(key, str)}
    with pytest.raises(TypeCheckError):
        function(*changed, **named)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("reward", FLOAT((N, T)), r"must begin with the axes \[2, 3\]"),
        ("truncated", FLOAT((T, N)), "truncated of a trajectory must be bool, got float32"),
        ("next_obs", {"a": FLOAT((T, N, 5)), "b": FLOAT((T,))}, r"next_obs.b .* got the shape"),
        ("extras", {"log_prob": FLOAT((T,))}, r"extras.log_prob .*\[3, 2\], got the shape \[3\]"),
        ("carry", FLOAT((T, 8)), r"carry .*\[2\], got the shape \[3, 8\]"),
    ],
)
def test_a_trajectory_is_checked_where_it_is_built(name: str, value: Any, words: str) -> None:
    trajectory = Trajectory(**ROLLOUT)
    assert trajectory.checked() is trajectory
    with pytest.raises(TriglotError, match=words):
        replace(trajectory, **{name: value}).checked()


def test_a_function_without_shapes_is_left_alone() -> None:
    def plain(agent: PPO) -> int:
        return 1

    def shaped(values: tuple[Float[Array, " B"], ...] | None) -> None: ...

    assert check_function(plain) is plain
    assert check_function(shaped) is not shaped


class WrongNotes(PPO):
    """A PPO whose policy notes something of the wrong length."""

    def act(self, *args: Any, **kwargs: Any) -> PolicyOutput:
        output = super().act(*args, **kwargs)
        return replace(output, extras={**output.extras, "note": jnp.zeros(1)})


def test_a_wrong_shape_is_caught_in_a_training() -> None:
    config = {"num_envs": 2, "rollout_length": 2, "num_minibatches": 1, "hidden_sizes": (8,)}
    env = probes.make("two-step")
    agent = triglot.make_agent(WrongNotes, env, backend="linen", config=config)
    with pytest.raises(TriglotError, match=r"extras\.note of a trajectory"):
        triglot.train(agent, env, key=jax.random.key(0), total_steps=1)
