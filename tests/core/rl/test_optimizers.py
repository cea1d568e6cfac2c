"""The optimizer seam: a function of the traced hyperparameters, built inside the step."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from triglot.algorithms.a2c import A2CHyperparams
from triglot.algorithms.dqn import DQNHyperparams
from triglot.algorithms.ppo import PPO, PPOHyperparams
from triglot.backends import build
from triglot.core.errors import TriglotError
from triglot.core.learner import Learner
from triglot.core.network import Network, Variables
from triglot.core.rl.optimizers import OPTIMIZERS, adam
from triglot.core.specs import Discrete
from triglot.envs import probes
from triglot.runs.registry.agents import make_agent

START = {"w": jnp.array([1.0, -2.0, 3.0]), "b": jnp.array([0.5])}
ENV = probes.make("two-step")
TINY = {"num_envs": 2, "rollout_length": 4, "num_minibatches": 2, "hidden_sizes": (4,)}


def network() -> Network:
    return Network(
        name="line",
        backend="core",
        init=lambda key: Variables(params=START, state=()),
        apply=lambda variables, inputs, **_: (inputs @ variables.params["w"], ()),
    )


def loss(variables: Variables, batch: jax.Array, key: jax.Array) -> Any:
    del key
    error = batch @ variables.params["w"] + variables.params["b"] - 1.0
    return jnp.mean(error**2), ({}, ())


def train(learner: Learner, hyper: Any, num_steps: int) -> Any:
    batches = jax.random.normal(jax.random.key(0), (num_steps, 8, 3))

    def step(state: Any, batch: jax.Array) -> tuple[Any, Any]:
        return learner.step(state, loss, batch, jax.random.key(0), hyper)

    return jax.lax.scan(step, learner.init(jax.random.key(0), hyper), batches)


def test_adam_built_from_traced_numbers_equals_inject_hyperparams_bit_for_bit() -> None:
    hyper = PPOHyperparams(learning_rate=0.01, max_grad_norm=0.5, adam_eps=1e-5)
    ours, _ = jax.jit(lambda hyper: train(Learner(network(), adam), hyper, 200))(hyper)

    def chain(learning_rate: float, max_grad_norm: float, eps: float) -> Any:
        clip = optax.clip_by_global_norm(max_grad_norm)
        return optax.chain(clip, optax.adam(learning_rate, eps=eps))

    injected = optax.inject_hyperparams(chain)(learning_rate=0.01, max_grad_norm=0.5, eps=1e-5)
    theirs, _ = jax.jit(lambda: train(Learner(network(), lambda hyper: injected), None, 200))()
    chex.assert_trees_all_equal(ours.variables.params, theirs.variables.params)
    assert int(ours.num_gradient_steps) == 200


def test_a_sweep_over_learning_rates_is_one_program() -> None:
    learner = Learner(network(), adam)

    @jax.jit
    @chex.assert_max_traces(n=1)
    def run(rates: jax.Array) -> Any:
        def one(rate: jax.Array) -> Any:
            return train(learner, PPOHyperparams(learning_rate=rate), 5)[0]

        return jax.vmap(one)(rates)

    first = run(jnp.array([0.0, 0.1]))
    run(jnp.array([0.2, 0.3]))
    np.testing.assert_array_equal(first.variables.params["w"][0], START["w"])
    assert (first.variables.params["w"][1] != START["w"]).all()


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_named_optimizer_clips_and_descends(name: str) -> None:
    hyper = PPOHyperparams(learning_rate=0.01, max_grad_norm=1e-3)
    _, metrics = jax.jit(lambda: train(Learner(network(), OPTIMIZERS[name]), hyper, 300))()
    assert float(metrics["loss"][-1]) < float(metrics["loss"][0])
    free = PPOHyperparams(learning_rate=0.01, max_grad_norm=1e9)
    _, without = jax.jit(lambda: train(Learner(network(), OPTIMIZERS[name]), free, 2))()
    np.testing.assert_array_equal(metrics["loss"][0], without["loss"][0])
    if name == "sgd":  # the others divide by the gradient's size
        assert float(metrics["loss"][1]) > float(without["loss"][1])


@pytest.mark.parametrize(
    ("algorithm", "hyperparams"), [("ppo", PPOHyperparams), ("dqn", DQNHyperparams)]
)
def test_the_gradient_norm_is_clipped_as_a_whole(algorithm: str, hyperparams: Any) -> None:
    """Published PPOs and DQNs clip each element (`optax.clip`) where the global norm was meant."""
    hyper = hyperparams(learning_rate=1.0, max_grad_norm=0.5, adam_eps=1e8)
    optimizer = make_agent(algorithm, ENV).optimizer(hyper)
    params = {"a": jnp.zeros(1), "b": jnp.zeros(1)}
    grads = {"a": jnp.array([3.0]), "b": jnp.array([4.0])}
    with jax.numpy_dtype_promotion("standard"):
        updates: Any = optimizer.update(grads, optimizer.init(params), params)[0]
    # With so large an epsilon Adam divides by it alone: -(0.3, 0.4) * 1e-8.
    np.testing.assert_allclose(updates["a"], [-0.3e-8], rtol=1e-5)
    np.testing.assert_allclose(updates["b"], [-0.4e-8], rtol=1e-5)


@pytest.mark.parametrize("hyperparams", [PPOHyperparams, A2CHyperparams, DQNHyperparams])
@pytest.mark.parametrize(("decay", "eps", "root"), [(0.99, 0.1, 0.14), (None, None, 0.4)])
def test_rmsprop_is_the_papers_with_its_numbers(
    hyperparams: Any, decay: float | None, eps: float | None, root: float
) -> None:
    """Mnih et al. 2016, equation S2: v = (1 - decay) g^2 = 0.04 or 0.4; the step is g / root."""
    hyper = hyperparams(learning_rate=0.5, max_grad_norm=1e9, rmsprop_decay=decay, rmsprop_eps=eps)
    optimizer, params = OPTIMIZERS["rmsprop"](hyper), jnp.zeros(1)
    with jax.numpy_dtype_promotion("standard"):
        updates: Any = optimizer.update(jnp.array([2.0]), optimizer.init(params), params)[0]
    np.testing.assert_allclose(updates, [-0.5 * 2.0 / np.sqrt(root)], rtol=1e-5)


def test_an_agent_takes_any_optimizer() -> None:
    agent = make_agent(
        "ppo", ENV, config=TINY, optimizer=lambda hyper: optax.lion(hyper.learning_rate)
    )
    state: Any = jax.eval_shape(agent.init, jax.random.key(0), 2)
    assert isinstance(state.learner.opt_state[0], optax.ScaleByLionState)
    by_name = make_agent("ppo", ENV, config=TINY, optimizer="lion")
    assert by_name.optimizer is OPTIMIZERS["lion"]
    by_path = make_agent("ppo", ENV, config=TINY, optimizer="triglot.core.rl.optimizers:sgd")
    assert by_path.optimizer is OPTIMIZERS["sgd"]


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (optax.adam(1e-3), "must be a function of its hyperparameters .*got a Gradient"),
        (lambda _: 1e-3, "it returned a float"),
        (lambda hyper: optax.adam(hyper.rate), "it failed: AttributeError: .*rate"),
        (3, "got a int"),
    ],
)
def test_what_is_not_an_optimizer_is_refused_before_anything_compiles(
    optimizer: Any, words: str
) -> None:
    network = build("table", PPO.networks(Discrete(2), Discrete(2)))
    with pytest.raises(TriglotError, match=words):
        PPO(network, Discrete(2), Discrete(2), optimizer=optimizer)


def test_an_unknown_optimizer_is_answered_with_the_nearest() -> None:
    with pytest.raises(TriglotError, match="unknown optimizer 'adan'; did you mean 'adam'"):
        make_agent("ppo", ENV, config=TINY, optimizer="adan")
