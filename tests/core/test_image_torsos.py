"""Which network reads images, by their size and by name."""

from typing import Any

import pytest

from triglot.algorithms.dqn import DQN
from triglot.algorithms.iqn import IQN
from triglot.algorithms.ppo import PPO
from triglot.algorithms.td3 import TD3
from triglot.core.errors import TriglotError
from triglot.core.networks.architecture import (
    CNN,
    MLP,
    ConvolutionConfig,
    Layers,
    NetworkSpec,
    default_torso,
    describe_image_torso,
)
from triglot.core.networks.inputs import pool_padding
from triglot.core.specs import Box, Dict, Discrete, Spec

ATARI, MINATAR = Box((84, 84, 4), "uint8", 0, 255), Box((10, 10, 4))
MINATAR_CNN = CNN((16,), 3, (128,))
NATURE_CNN = CNN((32, 64, 64), (8, 4, 3), (512,), stride=(4, 2, 1))
TWO_SIZES = Dict({"far": ATARI, "near": MINATAR, "speed": Box((2,))})


@pytest.mark.parametrize(
    ("obs", "given", "expected"),
    [
        (ATARI, {}, NATURE_CNN),
        (Box((36, 36, 1)), {}, NATURE_CNN),  # the smallest that its convolutions read
        (Box((35, 90, 1)), {}, MINATAR_CNN),
        (MINATAR, {}, MINATAR_CNN),
        (TWO_SIZES, {}, MINATAR_CNN),  # one network has to read both
        (Box((3, 3, 2)), {}, MINATAR_CNN),
        (Box((2, 9, 2)), {}, CNN((), hidden_sizes=(128,))),
        (MINATAR, {"torso": "impala"}, CNN((16, 32, 32), 3, (256,), residual=True)),
        (MINATAR, {"torso": "impala", "channels": (4,)}, CNN((4,), 3, (256,), residual=True)),
        (ATARI, {"torso": "minatar"}, MINATAR_CNN),
        (ATARI, {"kernel_size": (6, 4, 3)}, CNN((32, 64, 64), (6, 4, 3), (512,), stride=(4, 2, 1))),
        # Channels alone are the network of earlier versions.
        (ATARI, {"channels": (3,)}, CNN((3,), 4, (64,))),
        (MINATAR, {"channels": ()}, CNN((), 4, (64,))),
        (Box((7,)), {"torso": "impala"}, MLP((64, 64))),
    ],
)
def test_the_torso(obs: Spec, given: dict[str, Any], expected: Layers) -> None:
    assert default_torso(obs, convolutions=ConvolutionConfig(**given)) == expected


def test_the_given_units_win() -> None:
    torso = default_torso(ATARI, (7,))
    assert isinstance(torso, CNN) and torso.hidden_sizes == (7,)
    assert torso.channels == NATURE_CNN.channels


def layers_of(spec: Any) -> Layers:
    assert isinstance(spec, NetworkSpec)
    return spec.layers


def test_action_values_have_units_of_their_own_for_vectors_alone() -> None:
    for obs, units in ((Box((4,)), (120, 84)), (MINATAR, (128,)), (ATARI, (512,))):
        network = DQN.networks(obs, Discrete(2))["q_network"]
        assert layers_of(network).hidden_sizes == units
        parts = IQN.networks(obs, Discrete(2))
        head = dict(parts["obs_features"].heads)["obs_features"]
        assert (*layers_of(parts["obs_features"]).hidden_sizes, head.size) == units


def test_critics_read_images_by_convolutions_beside_actions() -> None:
    critic = TD3.networks(ATARI, Box((2,), "float32", -1.0, 1.0))["critic"]
    assert isinstance(critic, NetworkSpec)
    critic.check()
    assert [len(path.convolutions) for path in critic.plain.paths] == [3, 0]


@pytest.mark.parametrize(
    ("torso", "words"),
    [
        (CNN((4,), 4, residual=True), "residual blocks have convolutions of 3x3"),
        (CNN((4,), 3, stride=2, residual=True), "residual blocks have convolutions of 3x3"),
        (
            CNN((4,), 3, residual=True, normalization="layer", normalize_after_activation=True),
            "normalized before the activations",
        ),
    ],
)
def test_residual_blocks_of_another_form(torso: CNN, words: str) -> None:
    with pytest.raises(TriglotError, match=words):
        NetworkSpec(MINATAR, torso, ()).check()


def test_names_of_torsos() -> None:
    with pytest.raises(TriglotError, match=r"torso .*of PPO"):
        PPO.Config(torso="resnet")


def test_the_shapes_of_a_residual_section() -> None:
    spec = NetworkSpec(Box((84, 63, 4)), CNN((16, 32, 32), 3, (256,), residual=True), ())
    assert [path.output_shape for path in spec.paths] == [(11, 8, 32)]
    assert spec.num_features == 11 * 8 * 32
    assert spec.num_convolutions == 15
    # As TensorFlow pads: at the end first, so that each window lies where the paper's does.
    assert [pool_padding(side) for side in (84, 63, 1)] == [(0, 1), (1, 1), (1, 1)]


@pytest.mark.parametrize(
    ("obs", "given", "words"),
    [
        (
            ATARI,
            {},
            ("84x84x4", "32 of 8x8 at stride 4, 64 of 4x4 at stride 2", "512", "Mnih et al. 2015"),
        ),
        (MINATAR, {}, ("10x10x4", "16 of 3x3 at stride 1", "128", "Young and Tian 2019")),
        (Box((2, 2, 1)), {}, ("2x2x1", "no convolutions", "128")),
        (MINATAR, {"channels": (3,)}, None),
        (MINATAR, {"torso": "impala"}, None),
        (Box((4,)), {}, None),
    ],
)
def test_a_sentence_says_what_was_chosen(obs: Spec, given: Any, words: Any) -> None:
    config = PPO.Config(**given)
    text = describe_image_torso(PPO.networks(obs, Discrete(2), config)["actor"], config)
    assert (text is None) == (words is None)
    for word in words or ():
        assert word in str(text)
