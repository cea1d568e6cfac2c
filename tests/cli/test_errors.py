"""Bad configuration fails in words, before anything compiles."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from triglot.algorithms.ppo import PPO, PPOConfig, PPOHyperparams
from triglot.backends import build
from triglot.backends.canonical import with_arithmetic
from triglot.backends.translate import translate
from triglot.core.errors import MissingExtra, TriglotError, require
from triglot.core.network import Network, Variables
from triglot.core.networks.architecture import CNN, MLP, NetworkSpec, Table, q_head
from triglot.core.networks.combinators import combine
from triglot.core.specs import Box, Dict, Discrete

OBS, ACTIONS = Box((4,)), Discrete(2)


def network(**heads: tuple[int, ...]) -> Network:
    """Make a network that gives zeros of these shapes, batch axis apart."""

    def apply(variables, inputs, *, key=None, train=False):
        batch = inputs.shape[0]
        return {name: jnp.zeros((batch, *shape)) for name, shape in heads.items()}, ()

    return Network(
        name="mine",
        backend="haiku",
        init=lambda key: Variables(params={"w": jnp.zeros(1)}, state=()),
        apply=apply,
    )


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            network(logits=(2,), value=(1,)),
            r"PPO needs logits \[B, 2\] and value \[B\]; the haiku network 'mine' returned "
            r"value \[B, 1\]: drop its last axis",
        ),
        (network(logits=(3,), value=()), r"returned logits \[B, 3\]\."),
        (network(value=()), r"no logits \(it has value\)"),
    ],
    ids=["column", "actions", "missing"],
)
def test_ppo_says_which_heads_do_not_fit(made: Network, words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        PPO(made, OBS, ACTIONS)


def test_ppo_checks_that_minibatches_divide_a_rollout() -> None:
    made = network(logits=(2,), value=())
    with pytest.raises(TriglotError, match=r"must divide num_envs \* rollout_length = 512, got 3"):
        PPO(made, OBS, ACTIONS, PPOConfig(num_minibatches=3))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"num_epochs": -1}, "num_epochs must be at least 1, got -1"),
        ({"cell_size": 0}, "cell_size must be at least 1, got 0"),
        ({"kernel_size": 0}, "kernel_size must be at least 1, got 0"),
        ({"stride": (2, 0)}, "stride must be at least 1, got 0"),
        ({"initial_std": 0.0}, "initial_std must be finite and above 0, got 0.0"),
    ],
)
def test_ppo_checks_its_counts(config: dict[str, Any], words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        PPOConfig(**config)


@pytest.mark.parametrize(
    ("obs", "torso", "words"),
    [
        (Box((4,)), Table(), "use an MLP"),
        (Box((4,)), CNN(), r"\[H, W, C\] images"),
        (Box((4, 3, 1)), CNN(), "larger than 3x3"),
        (Box((9, 10, 1)), CNN((3, 3), (4, 3), stride=(3, 1)), "size 4, 3 and stride 3, 1 .* 9x9"),
        (Box((9, 9, 1)), CNN((3, 3), 3, stride=(2, 1, 1)), "one stride for all or 2, got 3"),
        (Dict({"a": Box((1,))}), CNN(), r"\[H, W, C\] images, got Dict.* use an MLP"),
        (Dict({"a": Box((1,))}), Table(), "a table reads a Discrete"),
        (
            Dict({"a": Dict({"b": Box((4, 3, 1))})}),
            CNN(),
            r"larger than 3x3, got \(4, 3\) of 'a/b'",
        ),
        (Dict({"a": Dict({})}), MLP(), "a network reads numbers, and there are none in Dict"),
        (
            Dict({"a": Box((9, 9, 1)), "b": Discrete(2)}),
            CNN(normalization="batch", normalize_inputs=True),
            "inputs are normalized where they are one array",
        ),
    ],
)
def test_a_torso_that_cannot_read_the_observation(obs, torso, words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        NetworkSpec(obs, torso, (("q", q_head(2)),)).check()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ({"discount": 2.0}, r"discount must be within \[0, 1\], got 2.0"),
        ({"gae_lambda": float("nan")}, r"gae_lambda must be within \[0, 1\], got nan"),
        ({"learning_rate": -1e-3}, "learning_rate must be finite and at least 0, got -0.001"),
    ],
)
def test_ppo_checks_its_numbers(number: dict[str, float], words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        PPO(network(logits=(2,), value=()), OBS, ACTIONS, hyper=PPOHyperparams(**number))


def test_two_networks_that_give_one_head() -> None:
    whole = network(logits=(2,), value=())
    with pytest.raises(TriglotError, match="two networks return the head 'logits'"):
        PPO(combine({"a": whole, "b": whole}), OBS, ACTIONS)


def test_unknown_names_get_the_nearest_choice() -> None:
    specs = PPO.networks(OBS, ACTIONS)
    with pytest.raises(TriglotError, match="unknown backend 'hiku'; did you mean 'haiku'"):
        build("hiku", specs)
    with pytest.raises(TriglotError, match="unknown arithmetic 'cannonical'; did you mean"):
        build("linen", specs, arithmetic="cannonical")


def test_a_missing_library_is_one_line_that_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'triglot\[haiku\]'") as error:
        require("a_library_that_is_not_there", "haiku")
    assert "\n" not in str(error.value)


def test_a_library_that_fails_for_want_of_another_says_so_itself(tmp_path, monkeypatch) -> None:
    (tmp_path / "half_installed.py").write_text("import something_else_entirely\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_else_entirely") as error:
        require("half_installed", "haiku")
    assert not isinstance(error.value, MissingExtra)


def test_a_network_without_a_codec_cannot_be_translated_or_reordered() -> None:
    made = network(logits=(2,))
    variables = made.init(jax.random.key(0))
    with pytest.raises(TriglotError, match="has no codec"):
        translate(variables, made, made)
    with pytest.raises(TriglotError, match="give a native network with a codec"):
        with_arithmetic(made, "canonical")
