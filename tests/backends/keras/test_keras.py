"""What people bring to `from_keras`."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot import Box, Network, from_keras
from triglot.core.errors import MissingExtra, TriglotError
from triglot.core.networks.unroll import unroll
from triglot.core.specs import Dict
from triglot.diff.loading import load_network

keras = pytest.importorskip("keras", reason="the extra keras is not installed")
layers = keras.layers
OBS = Box((4,))
KEY = jax.random.key(0)


def functional() -> Any:
    obs = keras.Input((4,))
    features = layers.Dense(8, activation="relu")(obs)
    features = layers.BatchNormalization()(layers.Dense(8)(features))
    return keras.Model(
        obs, {"logits": layers.Dense(2)(features), "value": layers.Dense(1)(features)}
    )


def sequential() -> Any:
    return keras.Sequential([layers.Dense(8, activation="tanh"), layers.Dense(8), layers.Dense(2)])


class Subclassed(keras.Model):
    """Layers in attributes, lists and dictionaries; one variable of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = [layers.Dense(8, activation="relu") for _ in range(2)]
        self.heads = {"logits": layers.Dense(2), "value": layers.Dense(1)}
        self._shared = layers.Dense(8)

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(shape=(8,), initializer="ones", name="scale")

    def call(self, obs: Any) -> Any:
        for block in self.blocks:
            obs = block(obs)
        obs = self._shared(self._shared(obs)) * self.scale
        return {name: head(obs) for name, head in self.heads.items()}


class Regularized(keras.Model):
    """Dropout and batch normalization, in a `call` without `training`."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(16)
        self.norm = layers.BatchNormalization(momentum=0.9)
        self.dropout = layers.Dropout(0.5)

    def call(self, obs: Any) -> Any:
        return self.dropout(self.norm(self.dense(obs)))


FORMS = {"functional": functional, "sequential": sequential, "subclassed": Subclassed}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


def batch(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(1), shape)


@every_form
@pytest.mark.library_promotion("Keras adds biases, outside of triglot")
def test_a_built_model_computes_what_keras_does_and_keeps_its_weights(form: Any) -> None:
    model, obs = form(), batch(5, 4)
    expected = model(obs)
    network = from_keras(model, OBS)
    outputs, _ = network.apply(network.init(KEY), obs)
    chex.assert_trees_all_close(outputs, expected)
    assert not network.random_start
    chex.assert_trees_all_equal(network.init(KEY), network.init(jax.random.key(1)))


@pytest.mark.slow
@every_form
def test_a_function_is_initialized_from_the_key_inside_jit_and_vmap(form: Any) -> None:
    network = from_keras(form, OBS)
    keys = jax.random.split(KEY, 3)
    several = jax.jit(jax.vmap(network.init))(keys)
    alone = [network.init(key) for key in keys]
    chex.assert_trees_all_close(jax.tree.map(lambda *each: jnp.stack(each), *alone), several)
    kernels = [a for n, a in several.params.items() if n.endswith("kernel")]
    assert all(len(np.unique(kernel)) == kernel.size for kernel in kernels)
    assert network.random_start
    assert not triglot.check_network(network, OBS).failed


def test_names_follow_from_the_model_alone() -> None:
    expected = {"dense/kernel", "dense/bias", "dense/1/kernel", "dense/1/bias"}
    for _ in range(2):
        network = from_keras(sequential, OBS)
        assert network.codec is not None
        assert {leaf.name for leaf in network.codec.leaves} >= expected
    network = from_keras(Subclassed, OBS)
    assert set(network.init(KEY).params) == {
        "scale",
        *(f"{place}/{name}" for name in ("kernel", "bias") for place in
          ("blocks/0", "blocks/1", "shared", "heads/logits", "heads/value")),
    }  # fmt: skip


def test_each_initializer_is_keras_own_whatever_its_seed() -> None:
    def model() -> Any:
        fixed: Any = {"kernel_initializer": keras.initializers.Orthogonal(gain=2.0, seed=7)}
        return keras.Sequential([layers.Dense(4, **fixed), layers.Dense(4, **fixed)])

    params = from_keras(model, OBS).init(KEY).params
    first, second = params["dense/kernel"], params["dense_1/kernel"]
    for kernel in (first, second):
        chex.assert_trees_all_close(kernel.T @ kernel, 4 * jnp.eye(4), atol=1e-4)
    assert not jnp.allclose(first, second)
    wide = from_keras(lambda: layers.Dense(400), Box((200,))).init(KEY).params["kernel"]
    assert np.isclose(np.abs(wide).max(), np.sqrt(6 / 600), rtol=1e-2)  # Glorot's uniform


def test_an_initializer_in_an_initializer_draws_from_the_key() -> None:
    cell = layers.LSTMCell(3, bias_initializer="random_normal")

    class Cell(keras.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell

        def call(self, obs: Any) -> Any:
            zeros = jnp.zeros((obs.shape[0], 3))
            return self.cell(obs, [zeros, zeros])[0]

    network = from_keras(Cell, OBS)
    one, other = (network.init(jax.random.key(s)).params["cell/bias"] for s in (0, 1))
    assert (one[3:6] == 1).all()
    assert (one[:3] != other[:3]).all()


def test_dropout_draws_from_the_key_of_the_call() -> None:
    network, obs = from_keras(Regularized, OBS), batch(64, 4)
    variables = network.init(KEY)
    assert set(variables.state) == {"norm/moving_mean", "norm/moving_variance"}

    @jax.jit
    def trained(key: jax.Array) -> jax.Array:
        return network.apply(variables, obs, key=key, train=True)[0]

    one, again, other = (trained(jax.random.key(seed)) for seed in (1, 1, 2))
    chex.assert_trees_all_equal(one, again)
    dropped = [np.asarray(each == 0) for each in (one, other)]
    assert (dropped[0] != dropped[1]).any()
    assert abs(dropped[0].mean() - 0.5) < 0.05
    evaluated, state = network.apply(variables, obs)
    assert (evaluated != 0).all()
    assert state is variables.state


def test_batch_normalization_moves_its_statistics_in_training_only() -> None:
    network, obs = from_keras(Regularized, OBS), batch(64, 4) + 3.0
    variables = network.init(KEY)
    _, moved = network.apply(variables, obs, key=KEY, train=True)
    features = obs @ variables.params["dense/kernel"] + variables.params["dense/bias"][None]
    chex.assert_trees_all_close(moved["norm/moving_mean"], 0.1 * features.mean(0), rtol=1e-4)
    variance = 0.9 + 0.1 * features.var(0)
    chex.assert_trees_all_close(moved["norm/moving_variance"], variance, rtol=1e-4)


def test_a_frozen_layer_is_state() -> None:
    def model() -> Any:
        frozen = layers.Dense(8)
        frozen.trainable = False
        return keras.Sequential([frozen, layers.Dense(2)])

    variables = from_keras(model, OBS).init(KEY)
    assert set(variables.params) == {"dense_1/kernel", "dense_1/bias"}
    assert set(variables.state) == {"dense/kernel", "dense/bias"}


def test_loaded_weights_are_kept_beside_drawn_ones() -> None:
    def model() -> Any:
        made = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])
        made.layers[0].kernel.assign(np.full((4, 3), 0.5))
        return made

    network = from_keras(model, OBS)
    one, other = (network.init(jax.random.key(seed)).params for seed in (0, 1))
    assert (one["dense/kernel"] == 0.5).all()
    assert not jnp.allclose(one["dense_1/kernel"], other["dense_1/kernel"])


def test_inputs_are_one_structure_or_several_arguments() -> None:
    class Several(keras.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, position: Any, goal: Any) -> Any:
            return self.dense(keras.ops.concatenate([position, goal], -1))

    class Structure(Several):
        def call(self, obs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().call(*(obs.values() if isinstance(obs, dict) else obs))

    def of_two() -> Any:
        inputs = [keras.Input((3,)), keras.Input((1,))]
        return keras.Model(inputs, layers.Dense(2)(layers.Concatenate()(inputs)))

    pair: tuple[Box, ...] = (Box((3,)), Box((1,)))
    arrays = batch(5, 3), batch(5, 1)
    for model in (Several, Structure, of_two):
        network = from_keras(model, pair)
        assert network.apply(network.init(KEY), arrays)[0].shape == (5, 2)
    named = from_keras(Structure, Dict({"position": pair[0], "goal": pair[1]}))
    given = dict(zip(("position", "goal"), arrays, strict=True))
    assert named.apply(named.init(KEY), given)[0].shape == (5, 2)


class Recurrent(keras.Layer):
    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell, self.head = cell, layers.Dense(2)

    def call(self, obs: Any, carry: Any) -> Any:
        features, carry = self.cell(obs, carry)
        return self.head(features), carry


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "SimpleRNNCell"])
def test_a_cell_is_a_recurrent_network(kind: str) -> None:
    count = 2 if kind == "LSTMCell" else 1
    network = from_keras(
        lambda: Recurrent(getattr(layers, kind)(6)),
        OBS,
        initial_carry=lambda num_envs: [jnp.zeros((num_envs, 6))] * count,
    )
    assert not triglot.check_network(network, OBS).failed
    variables, obs = network.init(KEY), batch(7, 3, 4)
    carry = network.initial_carry(variables, 3)
    outputs, last = unroll(network, variables, obs, jnp.zeros((7, 3), bool), carry)[:2]
    chex.assert_shape(outputs, (7, 3, 2))
    chex.assert_trees_all_equal_shapes(last, carry)


@pytest.mark.slow
def test_a_functional_model_may_be_recurrent() -> None:
    def model() -> Any:
        obs, hidden = keras.Input((4,)), keras.Input((6,))
        features, after = layers.GRUCell(6)(obs, hidden)
        return keras.Model([obs, hidden], [layers.Dense(2)(features), after])

    def initial_carry(num_envs: int) -> jax.Array:
        return jnp.zeros((num_envs, 6))

    network = from_keras(model, OBS, initial_carry=initial_carry)
    assert not triglot.check_network(network, OBS).failed


def test_a_clone_has_new_weights() -> None:
    model = functional()
    network = from_keras(lambda: keras.models.clone_model(model), OBS)
    assert network.random_start
    kernels = [network.init(jax.random.key(s)).params["dense/kernel"] for s in (0, 1)]
    assert not jnp.allclose(*kernels)


@pytest.mark.slow
def test_a_model_trains_with_dropout_and_batch_normalization() -> None:
    class Heads(Regularized):
        def __init__(self) -> None:
            super().__init__()
            self.logits, self.value = layers.Dense(2), layers.Dense(1)

        def call(self, obs: Any) -> Any:
            features = super().call(obs)
            return {"logits": self.logits(features), "value": self.value(features)[:, 0]}

    env = triglot.make_env("gymnax:CartPole-v1")
    network = from_keras(Heads, env.obs_spec)
    config = {"num_envs": 2, "rollout_length": 8, "num_epochs": 1, "num_minibatches": 2}
    agent = triglot.make_agent("ppo", env, networks=network, config=config)
    result = triglot.train(agent, env, total_steps=64, num_seeds=2, key=KEY)
    assert np.isfinite(np.asarray(result.metrics["loss"])).all()


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize("model", [functional, Subclassed])
def test_commands_take_a_model_its_class_or_a_function_that_makes_it(
    model: Callable[[], Any], is_built: bool
) -> None:
    network = load_network(model() if is_built else model, OBS)
    assert network.backend == "keras"
    outputs, _ = network.apply(network.init(KEY), batch(3, 4))
    assert set(outputs) == {"logits", "value"}


def of_array() -> Any:
    class Model(keras.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.table = keras.Variable(np.ones((4, 2)), name="table")

        def call(self, obs: Any) -> Any:
            return obs @ self.table

    return Model()


def half() -> Any:
    return layers.Dense(2, dtype="float16")


def dense(**how: Any) -> Callable[[], Any]:
    return lambda: keras.Sequential([layers.Dense(2, **how)])


def unseeded(shape: Any, dtype: Any) -> Any:
    return keras.random.normal(shape, dtype=dtype)


class TwoInputs(keras.Layer):
    def call(self, obs: Any, carry: Any) -> Any:
        return obs + carry


MISTAKES: dict[str, tuple[Any, str]] = {
    "another shape": (
        lambda: keras.Sequential([keras.Input((3,)), layers.Dense(2)]),
        r"failed on float32 \[B, 4\]: .*incompatible.*expected shape=\(None, 3\)",
    ),
    "a built model of another shape": (
        keras.Sequential([keras.Input((3,)), layers.Dense(2)]),
        r"failed on float32 \[B, 4\]: .*incompatible.*expected shape=\(None, 3\)",
    ),
    "no model": (lambda: 3, r"a function without arguments that returns one; .* a int"),
    "an array": (np.ones(3), r"from_keras takes a keras.Model.* ndarray"),
    "a constructor with arguments": (Recurrent, r"Recurrent failed when it was called with noth"),
    "a variable of an array": (of_array, r"made from an array.*add_weight"),
    "half precision": (half, r"'kernel' is stored as float16 .*set the layer's dtype to 'float32'"),
    "mixed precision": (
        dense(dtype="mixed_bfloat16"),
        r"stored as float32 and computed with as bfloat16",
    ),
    "a regularizer": (dense(kernel_regularizer="l2"), r"'dense/kernel' has a regularizer"),
    "a constraint": (dense(kernel_constraint="non_neg"), r"'dense/kernel' has a constraint"),
    "unseeded numbers": (
        dense(kernel_initializer=unseeded),
        r"the initializer of 'dense/kernel' cannot be traced",
    ),
    "an initializer of another shape": (
        dense(kernel_initializer=lambda shape, dtype: np.ones(3, dtype)),
        r"the initializer of .*dense.*/kernel returned shape \(3,\); the variable's is \(4, 2\)",
    ),
    "one input too few": (TwoInputs, r"requires 2 inputs \(obs, carry\).*initial_carry"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_one_sentence(model: Any, words: str) -> None:
    with pytest.raises(TriglotError, match=words) as caught:
        from_keras(model, OBS)
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "keras", None)
    with pytest.raises(MissingExtra, match=r"keras is not installed: .*'triglot\[keras\]'"):
        from_keras(sequential, OBS)


def test_networks_may_share_an_initializer() -> None:
    shared = keras.initializers.RandomNormal(seed=3)
    networks: list[Network] = [
        from_keras(lambda: layers.Dense(3, kernel_initializer=shared), OBS) for _ in range(2)
    ]
    for network in networks:
        one, other = (network.init(jax.random.key(seed)).params["kernel"] for seed in (0, 1))
        assert not jnp.allclose(one, other)
