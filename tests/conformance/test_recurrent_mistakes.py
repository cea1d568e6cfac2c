"""Recurrent modules without an initial carry, or in Flax's order, get advice in every library."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from triglot import combine, from_equinox, from_haiku, from_linen, from_nnx
from triglot.core.errors import TriglotError
from triglot.core.network import Network
from triglot.core.networks.heads import check_heads
from triglot.core.specs import Box

OBS = Box((4,))
NEEDS = {"logits": (2,)}
Step = Callable[[Any, Any], Any]


def initial_carry(num_envs: int) -> jax.Array:
    return jnp.zeros((num_envs, 3))


def outputs_first(obs: Any, carry: Any) -> Any:
    return {"logits": obs[..., :2]}, carry + 1.0


def flax_order(obs: Any, carry: Any) -> Any:
    return carry + 1.0, {"logits": obs[..., :2]}


def outputs_only(obs: Any, carry: Any) -> Any:
    return {"logits": obs[..., :2] + carry[..., :2]}


def other_carry(obs: Any, carry: Any) -> Any:
    return {"logits": obs[..., :2]}, carry[..., :2]


def lift(library: str, step: Step, **options: Any) -> Network:
    """Lift a module that computes `step` to a network of one library."""

    class Linen(nn.Module):
        @nn.compact
        def __call__(self, obs: Any, carry: Any) -> Any:
            return step(obs, carry)

    class NNX(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.unused = nnx.Linear(1, 1, rngs=rngs)

        def __call__(self, obs: Any, carry: Any) -> Any:
            return step(obs, carry)

    class Equinox(eqx.Module):
        unused: eqx.nn.Linear

        def __init__(self, key: jax.Array) -> None:
            self.unused = eqx.nn.Linear(1, 1, key=key)

        def __call__(self, obs: Any, carry: Any) -> Any:
            return step(obs, carry)

    class Haiku(hk.Module):
        def __call__(self, obs: Any, carry: Any) -> Any:
            return step(obs, carry)

    networks = {
        "haiku": lambda: from_haiku(Haiku, OBS, name="mine", **options),
        "linen": lambda: from_linen(Linen(), OBS, name="mine", **options),
        "nnx": lambda: from_nnx(NNX, name="mine", **options),
        "equinox": lambda: from_equinox(Equinox, name="mine", **options),
    }
    return networks[library]()


every_library = pytest.mark.parametrize("library", ["haiku", "linen", "nnx", "equinox"])


@every_library
def test_a_correct_recurrent_network_passes(library: str) -> None:
    network = lift(library, outputs_first, initial_carry=initial_carry)
    check_heads(network, OBS, NEEDS, algorithm="PPO")


@every_library
def test_without_an_initial_carry_it_asks_for_one(library: str) -> None:
    says = r"'mine' requires 2 inputs \(obs, carry\) and was given 1\. .*initial_carry=FUNCTION"
    with pytest.raises(TriglotError, match=says):
        check_heads(lift(library, outputs_first), OBS, NEEDS, algorithm="PPO")


@every_library
@pytest.mark.parametrize(
    "step, says",
    [
        (flax_order, r"returned \(carry, outputs\), Flax's order: return \(outputs, carry\)"),
        (outputs_only, r"returned a dict: return the pair \(outputs, carry\)"),
        (
            other_carry,
            r"returned \(outputs, carry\) with a carry of float32\[2, 2\]: .*"
            r"initial_carry\(2\), float32\[2, 3\]\.",
        ),
    ],
    ids=["Flax's order", "no carry", "another carry"],
)
def test_another_result_is_shown_with_what_is_expected(library: str, step: Step, says: str) -> None:
    network = lift(library, step, initial_carry=initial_carry)
    with pytest.raises(TriglotError, match=f"the recurrent {library} network 'mine' {says}"):
        check_heads(network, OBS, NEEDS, algorithm="PPO")


def test_a_part_of_a_combined_network_is_named() -> None:
    parts = {
        "actor": lift("linen", outputs_first, initial_carry=initial_carry),
        "critic": lift("equinox", flax_order, initial_carry=initial_carry),
    }
    with pytest.raises(TriglotError, match="the recurrent equinox network 'mine' returned"):
        check_heads(combine(parts), OBS, NEEDS, algorithm="PPO")


def test_a_carry_of_its_own_needs_an_initial_carry() -> None:
    def with_default(obs: Any, carry: Any = None) -> Any:
        return outputs_first(obs, jnp.zeros((obs.shape[0], 3)) if carry is None else carry)

    with pytest.raises(TriglotError, match=r"returned a tuple: .*needs initial_carry=FUNCTION"):
        check_heads(from_haiku(with_default, OBS), OBS, NEEDS, algorithm="PPO")
