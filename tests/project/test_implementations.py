"""Code is taken out of other programs' files, and compared beside triglot's."""

import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # benchmarks are not installed

from benchmarks.implementations import parts  # noqa: E402
from benchmarks.implementations.details import COMPARED  # noqa: E402
from benchmarks.implementations.recording import read  # noqa: E402
from benchmarks.implementations.sources import Checkout, SourceError  # noqa: E402
from tests.extras import TORCH  # noqa: E402
from triglot.diff.functions.arguments import arguments_of  # noqa: E402
from triglot.diff.functions.lifting import Batch  # noqa: E402

SCRIPT = """\
import a_package_that_is_not_installed
import numpy as np


class Args:
    rate: float = 0.25
    clip: float = 0.5
    target: float = None


def make(config):
    def train(key):
        def loss(params: Unknown, batch) -> Unknown:
            return np.mean((network(params, batch) - config["SHIFT"]) ** 2)

        return loss

    return train


class Learner:
    def __init__(self, *, limit=None, rate=3e-4):
        self.rate = rate

    def train(self):
        for batch in self.batches:
            values = []
            if self.scale:
                size = 2.0
                values.append(batch.item())
            else:
                size = 1.0
            with context():
                total = size * batch
                log(total)
            clip(total)
            step(self)


if __name__ == "__main__":
    args = parse(Args)
    for step in range(args.steps):
        error = read() - args.rate
        loss = error**2
        print(loss)
        loss.backward()
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    (tmp_path / "script.py").write_text(SCRIPT)
    return Checkout(tmp_path, "https://example.org/project")


def line_of(code: str) -> int:
    return next(n for n, line in enumerate(SCRIPT.splitlines(), 1) if code in line)


def test_a_nested_function_is_bound_and_keeps_its_line(checkout: Checkout) -> None:
    file = checkout.file("script.py")
    loss = file.function("make.train.loss", network=lambda p, b: p * b, config={"SHIFT": 1.0})
    assert loss(2.0, 3.0) == 25.0
    assert loss.__code__.co_filename == str(file.path)
    assert loss.__code__.co_firstlineno == line_of("def loss")
    failing = file.function("make.loss", network=lambda p, b: 1 / 0, config={})
    with pytest.raises(ZeroDivisionError) as raised:
        failing(1.0, 1.0)
    frames = traceback.extract_tb(raised.tb)
    assert line_of("np.mean(") in [frame.lineno for frame in frames]


def test_statements_are_those_on_which_results_depend(checkout: Checkout) -> None:
    file = checkout.file("script.py")
    total = file.statements(("total",), ("self", "batch"), scope="Learner.train",
                            context=lambda: memoryview(b""))  # fmt: skip
    assert total(SimpleNamespace(scale=True), 3.0) == 6.0  # neither `.item()` nor `log` is called
    assert total(SimpleNamespace(scale=False), 3.0) == 3.0
    both = file.statements(("error", "loss"), (), args=SimpleNamespace(rate=1.0), read=lambda: 3.0)
    assert both() == (2.0, 4.0)


def test_calls_run_in_order(checkout: Checkout) -> None:
    calls: list[Any] = []
    run = checkout.file("script.py").calls(
        ("clip", "step"), ("self", "total"), scope="Learner.train",
        clip=lambda total: calls.append(("clip", total)), step=lambda own: calls.append("step"),
    )  # fmt: skip
    assert run(None, 1) is None
    assert calls == [("clip", 1), "step"]


def test_defaults_are_read(checkout: Checkout) -> None:
    file = checkout.file("script.py")
    assert file.default("clip", scope="Args") == 0.5
    assert file.default("rate", scope="Learner.__init__") == 3e-4
    assert file.default("limit", scope="Learner.__init__") is None


def test_what_is_missing_is_said(checkout: Checkout) -> None:
    with pytest.raises(SourceError, match=r"is missing: is .* a clone of"):
        checkout.file("other.py")
    file = checkout.file("script.py")
    with pytest.raises(SourceError, match="nothing is missing"):
        file.function("make.nothing")
    with pytest.raises(SourceError, match="no block"):
        file.statements(("nothing",), ())
    with pytest.raises(SourceError, match="no block"):
        file.calls(("nothing",), ())
    with pytest.raises(SourceError, match="no default"):
        file.default("nothing", scope="Args")
    (checkout.path / "importing.py").write_text("import nowhere\n\ndef f():\n    return nowhere\n")
    with pytest.raises(SourceError, match=r"importing.py:1 cannot be imported"):
        checkout.file("importing.py").function("f")


@pytest.mark.slow
def test_each_switch_changes_its_part() -> None:
    own = {
        "ppo.loss": ("unbiased_std", "double_value_loss", "no_value_clip", "clipped_value_alone",
                     "no_entropy", "no_standardization"),
        "ppo.continuous": ("unbiased_std", "double_value_loss", "clipped_value_alone"),
        "ppo.gae": ("cut_at_truncation", "rollout_standardization"),
        "ppo.optimizer": ("adam_eps", "clip_by_element", "no_gradient_clip"),
        "dqn.loss": ("double_loss", "huber", "double_q"),
    }  # fmt: skip
    for part, switches in own.items():
        arguments = arguments_of(parts.PARTS[part].inputs)
        batch = {n: each[0] for n, each in arguments.draw(1, jax.random.key(0)).items()}
        batch |= {n: each.draw(jax.random.key(1)) for n, each in arguments.learned.items()}
        results = {
            switch: parts.PARTS[part].ours(frozenset({switch}))(Batch(batch), **arguments.constants)
            for switch in ("", *switches)
        }
        arrays = {
            name: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result)])
            for name, result in results.items()
        }
        for switch in switches:
            assert not np.allclose(arrays[switch], arrays[""], rtol=1e-6, atol=0), (part, switch)


def test_a_batch_is_recorded_for_each_loss() -> None:
    batches = read()
    for part, arrays in batches.items():
        assert set(arrays) == {n for n, v in parts.PARTS[part].inputs.items() if isinstance(v, str)}
    assert set(parts.PARTS) - set(batches) == {"ppo.schedule"}


def test_the_details_name_parts_and_switches() -> None:
    for detail in COMPARED:
        assert set(detail.parts) <= set(parts.PARTS) and set(detail.switches) <= set(parts.SWITCHES)
    for switch in parts.SWITCHES.values():
        assert switch.code in (ROOT / switch.file).read_text()


def test_a_step_of_optax_has_the_averages() -> None:
    columns = {"": 1.0, "grad_": 0.0, "mean_": 1.0, "square_": 1.0}
    batch = Batch(
        {column + name: jnp.full(3, number)
         for column, number in columns.items() for name in ("actor", "critic")}
    )  # fmt: skip
    step = parts.PARTS["ppo.optimizer"].ours(frozenset())
    with jax.numpy_dtype_promotion("strict"):
        after = step(batch, 1000)
    moved = 1 - np.asarray(after["actor"])
    correction = (1 - 0.999**1000) ** 0.5 / (1 - 0.9**1000)
    assert np.allclose(moved, parts.RATE * 0.9 / 0.999**0.5 * correction, rtol=1e-4)


@pytest.mark.skipif(not TORCH, reason="torchax is not installed: triglot[torch]")
def test_adam_that_can_be_traced_is_that_of_pytorch() -> None:
    import torch

    from benchmarks.implementations import tensors

    start, gradient = torch.linspace(-1, 1, 5), torch.linspace(2, -1, 5)
    theirs = torch.nn.Parameter(start.clone())
    reference = torch.optim.Adam([theirs], lr=1e-2, eps=1e-5)
    model = tensors.parameters_of(start, gradients=(gradient,))
    ours = tensors.Adam(model.parameters(), lr=1e-2, eps=1e-5)
    means, squares = [torch.zeros(5)], [torch.zeros(5)]
    for count in range(1, 4):
        theirs.grad = gradient.clone()
        reference.step()
        ours.begin(means, squares, count)
        with torch.no_grad():
            ours.step()
    assert torch.equal(model.parameters()[0].detach(), theirs.detach())


@pytest.mark.slow
@pytest.mark.skipif(not TORCH, reason="torchax is not installed: triglot[torch]")
def test_losses_of_pytorch_are_equal_through_torchax() -> None:
    from benchmarks.implementations.effects import torch_difference
    from tests.diff.functions import in_torch

    difference = torch_difference("ppo.loss", read()["ppo.loss"], in_torch.shipped_alone)
    assert difference < 1e-5
