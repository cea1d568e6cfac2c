"""`from_torch`: what it computes, against PyTorch, and what it refuses."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot import from_torch
from triglot.backends.torch.importing import load_torchax
from triglot.backends.torch.lifting import lift
from triglot.core.errors import TriglotError
from triglot.core.network import Network, Variables
from triglot.core.networks.unroll import unroll
from triglot.core.specs import Box, Dict, Discrete

torch: Any = pytest.importorskip("torch", reason="the extra torch is not installed")
nn: Any = torch.nn

OBS, KEY = Box((4,)), jax.random.key(0)
IMAGES = Box((6, 5, 3))


class Residual(nn.Module):
    """Nested modules, a tied weight, a plain tensor and a buffer that nothing changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.scale = torch.tensor([1.0, 2.0, 3.0, 4.0])
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Any) -> Any:
        hidden = torch.tanh(self.first(x)) * self.scale
        return {"q": x + self.second(hidden) + self.shift, "sum": hidden.sum(-1)}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(x).mean(1)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(5, 3), nn.Linear(7, 2)

    def forward(self, x: Any, index: Any) -> Any:
        return self.out(torch.cat([x["a"], self.embed(index)], -1))


class Assigned(nn.Module):
    """Writes into a tensor of its own, and into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x[:, 0] = 0.0
        x.mul_(2.0)
        out = torch.zeros(x.shape[0], 2)
        out[:, 0] = self.layer(x).sum(-1)
        return out


def convolutional() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ELU(), nn.Flatten(), nn.Linear(48, 2)
    )


CASES: dict[str, tuple[Callable[[], Any], Any, dict[str, Any]]] = {
    "residual": (Residual, OBS, {}),
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)), OBS, {}),
    "images": (convolutional, IMAGES, {"channels_first": True}),
    "attention": (Attention, Box((3, 4)), {}),
    "several inputs": (Two, (Dict({"a": OBS}), Discrete(5)), {}),
    "writes in place": (Assigned, OBS, {}),
}


@pytest.mark.covering(12)
@pytest.mark.parametrize("case", CASES)
def test_outputs_are_those_of_pytorch(case: str) -> None:
    make, obs_spec, options = CASES[case]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = make()
    network = from_torch(module, obs_spec, **options)
    assert network.backend == "torch" and not network.random_start
    variables = network.init(KEY)
    names = dict(module.state_dict())
    assert set(variables.params) | set(variables.state) <= set(names)
    for name, array in {**variables.params, **variables.state}.items():
        np.testing.assert_array_equal(array, names[name].numpy())
    report = triglot.check_network(network, obs_spec)
    assert set(report.failed) <= {"seeds"}, report  # the weights do not depend on the key


def test_the_callers_array_stays_as_it_is() -> None:
    network, x = from_torch(Assigned(), OBS), jnp.ones((2, 4))
    network.apply(network.init(KEY), x)
    np.testing.assert_array_equal(x, np.ones((2, 4)))


def test_a_tied_weight_is_one_parameter_and_a_plain_tensor_a_constant() -> None:
    variables = from_torch(Residual, OBS).init(KEY)
    assert sorted(variables.params) == ["first.bias", "first.weight", "second.bias"]
    assert sorted(variables.state) == ["shift"]


def test_a_frozen_parameter_is_state() -> None:
    module = nn.Linear(4, 2)
    module.weight.requires_grad_(False)
    variables = from_torch(module, OBS).init(KEY)
    assert (list(variables.params), list(variables.state)) == (["bias"], ["weight"])


def test_running_statistics_move_in_training_as_pytorchs() -> None:
    module = convolutional()
    network = from_torch(module, IMAGES, channels_first=True)
    variables = network.init(KEY)
    x = jax.random.normal(KEY, (4, 6, 5, 3))
    outputs, state = network.apply(variables, x, train=True)
    expected = copy.deepcopy(module).train()
    wanted = expected(torch.from_numpy(np.array(jnp.moveaxis(x, -1, 1))))
    np.testing.assert_allclose(outputs, wanted.detach().numpy(), atol=1e-5)
    assert int(state["1.num_batches_tracked"]) == 1
    for name in ("1.running_mean", "1.running_var"):
        np.testing.assert_allclose(state[name], expected.state_dict()[name].numpy(), atol=1e-6)
    chex.assert_trees_all_equal(network.apply(variables, x)[1], variables.state)


def test_dropout_uses_the_key_in_training_only() -> None:
    network = from_torch(nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5)), OBS)
    variables, x = network.init(KEY), jnp.ones((2, 4))

    def dropped(key: Any, train: bool = True) -> Any:
        return np.asarray(network.apply(variables, x, key=key, train=train)[0])

    one, same, other = dropped(KEY), dropped(KEY), dropped(jax.random.key(1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any() and 0.3 < (one == 0).mean() < 0.7
    assert not (dropped(KEY, train=False) == 0).any()


INITIALIZERS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "its default": (lambda weight: None, True),
    "orthogonal": (nn.init.orthogonal_, True),
    "xavier normal": (nn.init.xavier_normal_, True),
    "kaiming uniform": (nn.init.kaiming_uniform_, True),
    "a constant": (lambda weight: nn.init.constant_(weight, 2.0), True),
    "truncated normal": (nn.init.trunc_normal_, False),
    "sparse": (lambda weight: nn.init.sparse_(weight, 0.25), False),
}


@pytest.mark.covering(7)
@pytest.mark.parametrize("name", INITIALIZERS)
def test_each_key_draws_by_pytorchs_initializer(name: str) -> None:
    initializer, is_traced = INITIALIZERS[name]

    def make() -> Any:
        layer = nn.Linear(64, 32)
        initializer(layer.weight)
        return layer

    network = from_torch(make, Box((64,)))
    assert ("callback" not in str(jax.make_jaxpr(network.init)(KEY))) == is_traced
    keys = jax.random.split(KEY, 3)
    drawn = jax.jit(jax.vmap(network.init))(keys).params["weight"]
    np.testing.assert_allclose(drawn[1], network.init(keys[1]).params["weight"], rtol=1e-5)
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the mean of one draw in a thousand is too far from another's
        expected = make().weight.detach().numpy()
    for one in drawn:
        assert abs(float(one.std()) - expected.std()) <= 0.1 * expected.std()
        assert abs(float(one.mean()) - expected.mean()) <= 0.1 * max(expected.std(), 0.01)
        assert (one == 0).mean() == pytest.approx((expected == 0).mean(), abs=0.01)
    if name == "orthogonal":
        np.testing.assert_allclose(drawn[0] @ drawn[0].T, np.eye(32), atol=1e-5)
    if name != "a constant":
        assert (drawn[0] != drawn[1]).any()


def test_constructing_leaves_pytorchs_generator_as_it_was() -> None:
    before = torch.get_rng_state()
    from_torch(lambda: nn.Linear(4, 2), OBS).init(KEY)
    assert torch.equal(torch.get_rng_state(), before)


class Step(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.cell, self.out = kind(4, 3), nn.Linear(3, 2)

    def forward(self, x: Any, carry: Any) -> Any:
        carry = self.cell(x, carry)
        return self.out(carry[0] if isinstance(carry, tuple) else carry), carry


@pytest.mark.covering(2)
@pytest.mark.parametrize("kind", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_cells_are_unrolled_as_pytorch_does(kind: type) -> None:
    module, is_pair = Step(kind), kind is nn.LSTMCell

    def initial_carry(num_envs: int) -> Any:
        zeros = jnp.zeros((num_envs, 3))
        return (zeros, zeros) if is_pair else zeros

    network = from_torch(module, OBS, initial_carry=initial_carry)
    variables = network.init(KEY)
    obs = jax.random.normal(KEY, (5, 2, 4))
    first = jnp.zeros((5, 2), bool).at[2, 0].set(True)
    carry = network.initial_carry(variables, 2)
    outputs = unroll(network, variables, obs, first, carry)[0]
    expected: Any = torch.zeros(2, 3)
    expected = (expected, expected) if is_pair else expected
    for t in range(5):
        keep = torch.from_numpy(np.array(~first[t], np.float32))[:, None]
        expected = jax.tree.map(lambda each, keep=keep: each * keep, expected)
        wanted, expected = module(torch.from_numpy(np.array(obs[t])), expected)
        np.testing.assert_allclose(outputs[t], wanted.detach().numpy(), atol=1e-6)


class Branching(nn.Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


class Indexing(nn.Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x[x > 0].reshape(-1, 4))


class ViewWriting(nn.Linear):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        y.view(-1).mul_(2.0)
        return y


class WithoutGradient(nn.Linear):
    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            hidden = super().forward(x)
        return hidden + self.bias


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


class Rounded(nn.Linear):
    def forward(self, x: Any) -> Any:
        return StraightThrough.apply(super().forward(x))


class Unknown(nn.Linear):
    def forward(self, x: Any) -> Any:
        return torch.special.airy_ai(super().forward(x))


class Named(nn.Linear):
    def forward(self, x: Any) -> Any:
        return {"q": super().forward(x), "name": "q"}


def on_meta() -> Any:
    return nn.Linear(4, 2, device="meta")


REFUSED: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "another device": (on_meta, OBS, r"weight is on the device meta: move the module to the CPU"),
    "half precision": (lambda: nn.Linear(4, 2).half(), OBS, r"weight is float16; .*module.float"),
    "bfloat16": (lambda: nn.Linear(4, 2).bfloat16(), OBS, r"weight is bfloat16; .*module.float"),
    "double precision": (lambda: nn.Linear(4, 2).double(), OBS, r"is float64; .*module.float"),
    "a branch": (lambda: Branching(4, 2), OBS, r"if x.sum\(\) > 0.*use torch.where"),
    "a boolean index": (lambda: Indexing(4, 2), Box((4,), low=1.0, high=2.0), r"a boolean index"),
    "a write into a view": (lambda: ViewWriting(4, 2), OBS, r"the outputs.* differ from PyTorch's"),
    "no_grad": (
        lambda: WithoutGradient(4, 2),
        OBS,
        r"the gradients.* differ from PyTorch's.*use detach",
    ),
    "a custom gradient": (lambda: Rounded(4, 2), OBS, r"the gradients.* differ from PyTorch's"),
    "statistics that stay": (
        lambda: nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True)),
        Box((4, 5)),
        r"in training: the buffers.*running_mean.* differ from PyTorch's",
    ),
    "an operation": (lambda: Unknown(4, 2), OBS, r"operation .*airy_ai.*cannot convert to JAX"),
    "a text": (lambda: Named(4, 2), OBS, r"returned a str: return tensors"),
    "no module": (lambda: 3, OBS, r"takes a torch.nn.Module or a function.*returned a int"),
    "channels last": (convolutional, IMAGES, r"float32 \[B, 6, 5, 3\]; .*pass channels_first=True"),
    "other shapes": (lambda: nn.Linear(5, 2), OBS, r"failed on float32 \[B, 4\]: RuntimeError"),
    "lazy layers": (lambda: nn.LazyLinear(2), OBS, r"the shape of weight is not known yet"),
    "arguments": (lambda: nn.Linear, OBS, r"takes a torch.nn.Module.*returned a type"),
    "two inputs": (lambda: Step(nn.GRUCell), OBS, r"requires 2 inputs.*pass initial_carry"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_are_one_sentence(case: str) -> None:
    make, obs_spec, words = REFUSED[case]
    with pytest.raises(TriglotError, match=words) as caught:
        from_torch(make, obs_spec, name="mine")
    assert "\n" not in str(caught.value)


def test_channels_first_of_a_module_that_reads_them_last() -> None:
    module = nn.Sequential(nn.Flatten(2), nn.Linear(15, 2))
    with pytest.raises(TriglotError, match="leave out channels_first=True"):
        from_torch(module, IMAGES, channels_first=True)


def test_the_global_environment_of_torchax_is_not_ours() -> None:
    torchax = load_torchax()
    network, _ = lift(lambda: nn.BatchNorm1d(4))
    network.apply(network.init(KEY), jnp.ones((3, 4)), train=True)
    assert torch.nn.functional.batch_norm not in torchax.default_env()._ops
    assert not torchax.default_env().enabled
    x = torch.ones(2, 4)
    assert torch.equal(nn.Identity()(x), x) and type(x + x) is torch.Tensor


SIDE_EFFECTS = """
import os, sys, jax, torch
before = dict(jax.config.values), dict(os.environ), torch.backends.mha.get_fastpath_enabled()
before += (torch.get_default_dtype(), torch.get_default_device(), torch.get_rng_state().tolist())
before += (torch.accelerator.is_available(),)
from triglot import Box, from_torch
network = from_torch(lambda: torch.nn.Linear(4, 2), Box((4,)))
network.init(jax.random.key(0))
after = dict(jax.config.values), dict(os.environ), torch.backends.mha.get_fastpath_enabled()
after += (torch.get_default_dtype(), torch.get_default_device(), torch.get_rng_state().tolist())
after += (torch.accelerator.is_available(),)
for one, other in zip(before, after):
    assert one == other, (one, other)
try:
    torch.ops.aten.prod.no_such_name
except AttributeError:
    sys.exit(0)
sys.exit("stand-ins are left")
"""


@pytest.mark.slow
def test_using_it_changes_no_setting() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIDE_EFFECTS],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_without_pytorch_the_command_to_install_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from triglot.backends.torch import importing

    importing.load_torchax.cache_clear()
    monkeypatch.setitem(sys.modules, "torchax", None)
    with pytest.raises(TriglotError, match=r"torchax is not installed.*'triglot\[torch\]'"):
        from_torch(nn.Linear(4, 2), OBS)
    monkeypatch.undo()
    importing.load_torchax.cache_clear()


def test_versions_that_do_not_fit_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from triglot.backends.torch import importing

    def broken(name: str, extra: str) -> Any:
        if name == "torchax":
            raise AttributeError("no attribute 'gone'")
        return torch

    importing.load_torchax.cache_clear()
    monkeypatch.setattr(importing, "require", broken)
    with pytest.raises(TriglotError, match=r"torchax .* cannot be imported with torch .*gone"):
        from_torch(nn.Linear(4, 2), OBS)
    importing.load_torchax.cache_clear()


def gradient(network: Network, variables: Variables, x: Any) -> Any:
    return jax.grad(lambda params: network.apply(Variables(params=params, state={}), x)[0].sum())(
        variables.params
    )


def test_detach_stops_gradients() -> None:
    class Detached(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x).detach() + self.bias

    network = from_torch(lambda: Detached(4, 2), OBS)
    found = gradient(network, network.init(KEY), jnp.ones((3, 4)))
    np.testing.assert_array_equal(found["weight"], np.zeros((2, 4)))
    np.testing.assert_array_equal(found["bias"], np.full(2, 3.0))


class Distances(nn.Module):
    """Distances of all points from each other, which are 0 from themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        points = self.layer(x)
        return torch.norm(points[:, None] - points[None], dim=-1)


def test_a_norm_at_zero_has_the_gradient_of_pytorch() -> None:
    network = from_torch(Distances, OBS)  # which compares gradients with PyTorch's
    gradients = gradient(network, network.init(KEY), jnp.ones((3, 4)))
    assert all(np.all(np.isfinite(array)) for array in jax.tree.leaves(gradients))


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.encoder(x, mask=mask)


@pytest.mark.slow
def test_an_encoder_with_a_mask() -> None:
    network = from_torch(Masked, Box((5, 4)))  # which compares outputs with PyTorch's
    x = jax.random.normal(KEY, (2, 5, 4))
    variables = network.init(KEY)
    outputs = [network.apply(variables, each)[0] for each in (x, x.at[:, 3:].set(0.0))]
    np.testing.assert_allclose(outputs[0][:, :3], outputs[1][:, :3], rtol=1e-5, atol=1e-6)


def test_complex_parameters_are_refused_with_what_to_write() -> None:
    class Filter(nn.Module):
        def __init__(self, split: bool) -> None:
            super().__init__()
            weights = torch.randn(3, 2, dtype=torch.complex64)
            self.weights = nn.Parameter(torch.view_as_real(weights) if split else weights)

        def forward(self, x: Any) -> Any:
            weights = self.weights
            if not weights.is_complex():
                weights = torch.view_as_complex(weights)
            return torch.fft.irfft(torch.fft.rfft(x) @ weights)

    with pytest.raises(TriglotError, match=r"\(3, 2, 2\).*view_as_complex"):
        from_torch(lambda: Filter(split=False), OBS)
    from_torch(lambda: Filter(split=True), OBS)
