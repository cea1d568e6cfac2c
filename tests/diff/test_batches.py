"""The batches on which two networks are compared."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from triglot import diff_networks
from triglot.core.specs import Box

INPUTS = Box((4,))

pytestmark = pytest.mark.library_promotion("norms broadcast and promote")


class UnbiasedBatchNorm(nnx.Module):
    """Batch normalization that needs two examples in training, as PyTorch's."""

    def __init__(self, unbiased: bool = True) -> None:
        self.mean = nnx.BatchStat(jnp.zeros(5))
        self.variance = nnx.BatchStat(jnp.ones(5))
        self.unbiased = unbiased
        self.use_running_average = False

    def __call__(self, x: jax.Array) -> jax.Array:
        mean, variance = self.mean[...], self.variance[...]
        if not self.use_running_average:
            if x.shape[0] == 1:
                raise ValueError("batch normalization in training needs two examples")
            correction = x.shape[0] / (x.shape[0] - 1) if self.unbiased else 1.0
            mean, variance = x.mean(0), x.var(0)
            for old, new in ((self.mean, mean), (self.variance, variance * correction)):
                old[...] = 0.9 * old[...] + 0.1 * jax.lax.stop_gradient(new)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5)


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs, **options: Any) -> None:
        self.layer = nnx.Linear(4, 5, rngs=rngs)
        self.norm = UnbiasedBatchNorm(**options)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.layer(x))


@pytest.mark.covering(2)
@pytest.mark.parametrize("unbiased", [True, False])
def test_a_network_that_needs_two_examples_in_training(unbiased: bool) -> None:
    report = diff_networks(Net, lambda rngs: Net(rngs, unbiased=unbiased), INPUTS)
    assert {each.quantity.batch for each in report.measurements} == {2, 32}
    names = {cause.name for cause in report.causes} - {"initializer"}
    assert names == (set() if unbiased else {"unbiased_variance"})
