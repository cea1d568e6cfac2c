"""PureJaxRL's PPO and DQN: functions inside `make_train`, in JAX."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import distrax
import jax
import jax.numpy as jnp

from . import parts
from .parts import Project, Theirs
from .sources import Checkout

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
    def apply(params: Any, obs: Any) -> Any:
        """Return the policy and the values."""
        del obs
        return distrax.Categorical(logits=params["logits"]), params["value"]


class Values:
    """A network whose parameters are its action values, or which reads them."""

    @staticmethod
    def apply(params: Any, obs: Any) -> jax.Array:
        """Return action values `[B, A]`."""
        return params if obs is None else obs


def parts_of(checkout: Checkout) -> Mapping[str, Theirs]:
    """Build PureJaxRL's parts."""
    ppo, dqn = checkout.file("purejaxrl/ppo.py"), checkout.file("purejaxrl/dqn.py")

    def config(defaults: bool) -> dict[str, Any]:
        names = ("CLIP_EPS", "VF_COEF", "ENT_COEF", "GAMMA", "GAE_LAMBDA", "LR", "MAX_GRAD_NORM")
        return CONFIG | {n: ppo.default(n, scope="") for n in names if defaults}

    def loss(defaults: bool) -> Any:
        theirs = ppo.function("make_train._loss_fn", network=Outputs, config=config(defaults))

        def purejaxrl_loss(
            logits: jax.Array,
            value: jax.Array,
            action: jax.Array,
            old_log_prob: jax.Array,
            old_value: jax.Array,
            advantage: jax.Array,
            target: jax.Array,
        ) -> jax.Array:
            batch = SimpleNamespace(obs=None, action=action, log_prob=old_log_prob, value=old_value)
            return theirs({"logits": logits, "value": value}, batch, advantage, target)[0]

        return purejaxrl_loss

    def gae(defaults: bool) -> Any:
        theirs = ppo.function("make_train._calculate_gae", config=config(defaults))

        def purejaxrl_gae(
            reward: jax.Array,
            value: jax.Array,
            last_value: jax.Array,
            final_value: jax.Array,
            terminated: jax.Array,
            truncated: jax.Array,
        ) -> dict[str, jax.Array]:
            del final_value
            steps = parts.Steps(jnp.maximum(terminated, truncated), value, reward)
            advantage, target = theirs(steps, last_value)
            return {"advantage": advantage, "target": target}

        return purejaxrl_gae

    def optimizer(defaults: bool) -> Any:
        build = ppo.statements(("tx",), (), scope="make_train.train", linear_schedule=None,
                               config=config(defaults))  # fmt: skip
        return parts.optax_step(build())

    def schedule(defaults: bool) -> Any:
        theirs = ppo.function("make_train.linear_schedule", config=config(defaults))

        def purejaxrl_rate(step: jax.Array) -> jax.Array:
            return theirs(step)

        return purejaxrl_rate

    def dqn_loss(defaults: bool) -> Any:
        gamma = dqn.default("GAMMA", scope="main") if defaults else parts.GAMMA
        target_of = dqn.statements(
            ("target",),
            ("learn_batch", "train_state"),
            scope="make_train._learn_phase",
            network=Values,
            config={"GAMMA": gamma},
        )

        def purejaxrl_dqn_loss(
            q: jax.Array,
            next_q: jax.Array,
            next_target_q: jax.Array,
            action: jax.Array,
            reward: jax.Array,
            terminated: jax.Array,
            truncated: jax.Array,
        ) -> jax.Array:
            del next_q
            first = SimpleNamespace(
                obs=None, action=action, reward=reward, done=jnp.maximum(terminated, truncated)
            )
            batch = SimpleNamespace(first=first, second=SimpleNamespace(obs=next_target_q))
            target = target_of(batch, SimpleNamespace(target_network_params=None))
            theirs = dqn.function(
                "make_train._learn_phase._loss_fn",
                network=Values, learn_batch=batch, target=target,
            )  # fmt: skip
            return theirs(q)

        return purejaxrl_dqn_loss

    return {
        "ppo.loss": Theirs(loss, (), "ppo.py, `_loss_fn`"),
        "ppo.gae": Theirs(gae, ("cut_at_truncation",), "ppo.py, `_calculate_gae`",
            lines={"cut_at_truncation": ("purejaxrl/ppo.py", "next_value * (1 - done) - value")}),
        "ppo.optimizer": Theirs(optimizer, (), "ppo.py, `tx`"),
        "ppo.schedule": Theirs(schedule, (), "ppo.py, `linear_schedule`"),
        "dqn.loss": Theirs(dqn_loss, ("double_loss", "cut_at_truncation"),
                           "dqn.py, `target` and `_loss_fn`",
            lines={"cut_at_truncation": ("purejaxrl/dqn.py", "(1 - learn_batch.first.done)")}),
    }  # fmt: skip


PROJECT = Project("PureJaxRL", "purejaxrl", "https://github.com/luchris429/purejaxrl", parts_of)
