"""PureJaxRL's PPO of both kinds of actions, and DQN: functions in `make_train`, in JAX."""

from collections.abc import Mapping
from types import SimpleNamespace

import distrax
import jax
import jax.numpy as jnp

from triglot.diff.functions.lifting import Batch

from . import parts
from .parts import Function, Project, Theirs
from .sources import Checkout, SourceFile

CONFIG = {
    "CLIP_EPS": 0.2,
    "VF_COEF": 0.5,
    "ENT_COEF": 0.01,
    "GAMMA": parts.GAMMA,
    "GAE_LAMBDA": parts.LAMBDA,
    "LR": parts.RATE,
    "MAX_GRAD_NORM": parts.MAX_NORM,
    "ANNEAL_LR": False,
    "NUM_MINIBATCHES": 4,
    "UPDATE_EPOCHS": 4,
    "NUM_UPDATES": parts.UPDATES,
}


class Outputs:
    """A network whose parameters are its outputs."""

    @staticmethod
    def apply(params: Mapping[str, jax.Array], obs: None) -> tuple[distrax.Distribution, jax.Array]:
        """Return the policy and the values."""
        del obs
        return parts.policy_of(params), params["value"]


class Values:
    """A network whose parameters are its action values, or which reads them."""

    @staticmethod
    def apply(params: jax.Array, obs: jax.Array | None) -> jax.Array:
        """Return action values `[B, A]`."""
        return params if obs is None else obs


def parts_of(checkout: Checkout) -> Mapping[str, Theirs]:
    """Build PureJaxRL's parts."""
    ppo, continuous, dqn = (
        checkout.file(f"purejaxrl/{name}.py") for name in ("ppo", "ppo_continuous_action", "dqn")
    )

    def loss_in(file: SourceFile) -> Function:
        loss = file.function("make_train._loss_fn", network=Outputs, config=CONFIG)

        def purejaxrl_loss(batch: Batch) -> jax.Array:
            return loss(batch, parts.Samples.of(batch), batch.advantage, batch.target)[0]

        return purejaxrl_loss

    gae = ppo.function("make_train._calculate_gae", config=CONFIG)

    def purejaxrl_gae(batch: Batch) -> dict[str, jax.Array]:
        advantage, target = gae(parts.Steps.of(batch), batch.last_value)
        return {"advantage": advantage, "target": target}

    optimizer = ppo.statements(
        ("tx",), (), scope="make_train.train", linear_schedule=None, config=CONFIG
    )
    rate = ppo.function("make_train.linear_schedule", config=CONFIG)

    def purejaxrl_rate(step: jax.Array) -> jax.Array:
        return rate(step)

    target_of = dqn.statements(
        ("target",),
        ("learn_batch", "train_state"),
        scope="make_train._learn_phase",
        network=Values,
        config={"GAMMA": parts.GAMMA},
    )

    def purejaxrl_dqn_loss(batch: Batch) -> jax.Array:
        done = jnp.maximum(batch.terminated, batch.truncated)
        first = SimpleNamespace(obs=None, action=batch.action, reward=batch.reward, done=done)
        steps = SimpleNamespace(first=first, second=SimpleNamespace(obs=batch.next_target_q))
        target = target_of(steps, SimpleNamespace(target_network_params=None))
        name = "make_train._learn_phase._loss_fn"
        return dqn.function(name, network=Values, learn_batch=steps, target=target)(batch.q)

    return {
        "ppo.loss": Theirs(loss_in(ppo)),
        "ppo.continuous": Theirs(loss_in(continuous)),
        "ppo.gae": Theirs(
            purejaxrl_gae,
            ("cut_at_truncation",),
            lines={"cut_at_truncation": ("purejaxrl/ppo.py", "next_value * (1 - done) - value")},
        ),
        "ppo.optimizer": Theirs(parts.optax_step(optimizer())),
        "ppo.schedule": Theirs(purejaxrl_rate),
        "dqn.loss": Theirs(
            purejaxrl_dqn_loss,
            ("double_loss", "cut_at_truncation"),
            lines={"cut_at_truncation": ("purejaxrl/dqn.py", "(1 - learn_batch.first.done)")},
        ),
    }


PROJECT = Project("PureJaxRL", "purejaxrl", "https://github.com/luchris429/purejaxrl", parts_of)
