"""rejax's PPO of both kinds of actions, DQN and SAC: methods and the losses within, in JAX."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import chex
import jax
import jax.numpy as jnp

from triglot.diff.functions.lifting import Batch

from . import parts
from .parts import Function, Project, Theirs
from .sources import Checkout

PPO, DQN, SAC, BASE = (f"src/rejax/algos/{n}.py" for n in ("ppo", "dqn", "sac", "algorithm"))


class Policy:
    """An actor whose parameters are its outputs."""

    @staticmethod
    def apply(
        params: Batch, obs: None, action: jax.Array, method: str
    ) -> tuple[chex.Array, chex.Array]:
        """Return log-probabilities and entropies, `[B]` each."""
        del obs, method
        policy = parts.policy_of(params)
        return policy.log_prob(action), policy.entropy()


class Critic:
    """A critic whose parameters are its values."""

    @staticmethod
    def apply(value: jax.Array, obs: None) -> jax.Array:
        """Return values `[B]`."""
        del obs
        return value


class ActionValues:
    """A network whose parameters are its action values, unless the observations are."""

    @staticmethod
    def apply(
        q: Any, obs: "ByNetwork | None", action: jax.Array | None = None, method: str = ""
    ) -> jax.Array:
        """Return action values `[B, A]`, or those of the actions, `[B]`."""
        del method
        values = q if obs is None else obs[q]
        if action is None:
            return values
        return jnp.take_along_axis(values, action[:, None], axis=1).squeeze(axis=1)


class Drawn:
    """An actor whose parameters are the log-probabilities of the actions that it draws."""

    @staticmethod
    def apply(
        log_prob: jax.Array, obs: None, key: jax.Array, method: str
    ) -> tuple[jax.Array, jax.Array]:
        """Return actions, which no critic reads, and their log-probabilities `[B]`."""
        del obs, key, method
        return log_prob[:, None], log_prob


def parts_of(checkout: Checkout) -> Mapping[str, Theirs]:
    """Build rejax's parts."""
    ppo, dqn, sac, base = (checkout.file(name) for name in (PPO, DQN, SAC, BASE))
    ppo_self = SimpleNamespace(
        clip_eps=0.2,
        vf_coef=0.5,
        ent_coef=0.01,
        gae_lambda=parts.LAMBDA,
        gamma=parts.GAMMA,
        actor=Policy,
        critic=Critic,
    )

    def rejax_loss(batch: Batch) -> jax.Array:
        steps = SimpleNamespace(
            trajectories=parts.Samples.of(batch), advantages=batch.advantage, targets=batch.target
        )
        actor_loss, critic_loss = (
            ppo.function(f"PPO.update_{name}.{name}_loss_fn", self=ppo_self, batch=steps)
            for name in ("actor", "critic")
        )
        return actor_loss(batch) + critic_loss(batch.value)

    gae = ppo.function("PPO.calculate_gae")

    def rejax_gae(batch: Batch) -> dict[str, jax.Array]:
        advantage, target = gae(ppo_self, parts.Steps.of(batch), batch.last_value)
        return {"advantage": advantage, "target": target}

    def optimizer(limit: float) -> Function:
        algorithm = SimpleNamespace(max_grad_norm=limit, learning_rate=parts.RATE)
        build = ppo.statements(("tx",), ("self",), scope="PPO.initialize_network_params")
        return parts.optax_step(build(algorithm), build(algorithm))

    def schedule(rate: float) -> Function:
        rates_only = SimpleNamespace(
            chain=lambda clipping, rate: rate,
            clip=lambda limit: None,
            adam=lambda learning_rate: learning_rate,
        )
        rate_of = ppo.statements(
            ("tx",), ("self",), scope="PPO.initialize_network_params", optax=rates_only
        )
        constant = rate_of(SimpleNamespace(max_grad_norm=parts.MAX_NORM, learning_rate=rate))

        def rejax_rate(step: jax.Array) -> jax.Array:
            del step
            return jnp.asarray(constant)

        return rejax_rate

    def dqn_loss(gamma: float, double: bool) -> Function:
        algorithm = SimpleNamespace(
            agent=ActionValues, gamma=gamma, ddqn=double, normalize_rewards=False
        )
        build = dqn.statements(("loss_fn",), ("self", "ts", "mb"), scope="DQN.update")

        def rejax_dqn_loss(batch: Batch) -> jax.Array:
            steps = SimpleNamespace(
                obs=None,
                action=batch.action,
                reward=batch.reward,
                done=jnp.maximum(batch.terminated, batch.truncated),
                next_obs=ByNetwork(batch.next_q, batch.next_target_q),
            )
            return build(algorithm, SimpleNamespace(q_target_params="target"), steps)(batch.q)

        return rejax_dqn_loss

    def state(batch: Batch, log_prob: jax.Array | None) -> SimpleNamespace:
        return SimpleNamespace(
            rng=jax.random.key(0),
            alpha_ts=SimpleNamespace(params={"log_alpha": batch.log_temperature}),
            actor_ts=SimpleNamespace(params=log_prob),
            critic_ts=SimpleNamespace(params=batch.q),
            critic_target_params=batch.get("next_target_q"),
        )

    soft = SimpleNamespace(
        discrete=False,
        actor=Drawn,
        vmap_critic=lambda q, *inputs: q,
        gamma=parts.GAMMA,
        target_entropy=-1,
    )
    critic, actor = (
        sac.statements((f"{name}_loss_fn",), ("self", "ts", "mb"), scope=f"SAC.update_{name}")
        for name in ("critic", "actor")
    )
    temperature = sac.function("SAC.update_alpha.alpha_loss_fn", self=soft)

    def rejax_critic_loss(batch: Batch) -> jax.Array:
        done = jnp.maximum(batch.terminated, batch.truncated)
        steps = SimpleNamespace(
            obs=None, next_obs=None, action=None, reward=batch.reward, done=done
        )
        return critic(soft, state(batch, batch.next_log_prob), steps)(batch.q)

    def rejax_actor_loss(batch: Batch) -> jax.Array:
        steps = SimpleNamespace(obs=None)
        return actor(soft, state(batch, None), steps)(batch.log_prob)[0]

    def rejax_temperature_loss(batch: Batch) -> jax.Array:
        return temperature({"log_alpha": batch.log_temperature}, batch.log_prob)

    at_limit = ("cut_at_truncation",)
    dqn_lines = {"cut_at_truncation": (DQN, "jnp.logical_not(mb.done)")}
    default_rate, default_gamma = (
        base.default(name, scope="Algorithm") for name in ("learning_rate", "gamma")
    )
    double = dqn.default("ddqn", scope="DQN")
    return {
        "ppo.loss": Theirs(rejax_loss),
        "ppo.continuous": Theirs(rejax_loss),
        "ppo.gae": Theirs(
            rejax_gae,
            at_limit,
            lines={"cut_at_truncation": (PPO, "next_value * (1 - transition.done)")},
        ),
        "ppo.optimizer": Theirs(
            optimizer(parts.MAX_NORM),
            ("clip_by_element", "adam_eps"),
            lines={
                "clip_by_element": (PPO, "optax.clip("),
                "adam_eps": (PPO, "optax.adam("),
            },
            defaults=Theirs(
                optimizer(jnp.inf),  # as the default is written
                ("no_gradient_clip", "adam_eps"),
                lines={
                    "no_gradient_clip": (BASE, "max_grad_norm: chex.Scalar"),
                    "adam_eps": (PPO, "optax.adam("),
                },
            ),
        ),
        "ppo.schedule": Theirs(
            schedule(parts.RATE),
            ("constant_rate",),
            lines={"constant_rate": (PPO, "optax.adam(")},
            defaults=Theirs(
                schedule(default_rate),
                ("constant_rate", "larger_rate"),
                lines={
                    "constant_rate": (PPO, "optax.adam("),
                    "larger_rate": (BASE, "learning_rate: chex.Scalar"),
                },
            ),
        ),
        "dqn.loss": Theirs(
            dqn_loss(parts.GAMMA, False),
            at_limit,
            lines=dqn_lines,
            defaults=Theirs(
                dqn_loss(default_gamma, double), (*at_limit, "double_q"), lines=dqn_lines
            ),
        ),
        "sac.critic": Theirs(
            rejax_critic_loss,
            at_limit,
            lines={"cut_at_truncation": (SAC, "(1 - mb.done) * q_target")},
        ),
        "sac.actor": Theirs(rejax_actor_loss),
        "sac.temperature": Theirs(rejax_temperature_loss),
    }


class ByNetwork:
    """Next observations: what the online and the target network return for them."""

    def __init__(self, online: jax.Array, target: jax.Array) -> None:
        self.online, self.target = online, target

    def __getitem__(self, params: object) -> jax.Array:
        return self.target if isinstance(params, str) else self.online


PROJECT = Project("rejax", "rejax", "https://github.com/keraJLi/rejax", parts_of)
