"""Stoix's PPO: functions inside `get_learner_fn` and what they call, in JAX."""

from collections.abc import Mapping
from types import SimpleNamespace

import distrax
import jax
import jax.numpy as jnp

from triglot.diff.functions.lifting import Batch

from . import parts
from .parts import Project, Theirs
from .sources import Checkout

FILE = "stoix/systems/ppo/anakin/ff_ppo.py"


def actor_apply(logits: jax.Array, obs: None) -> distrax.Categorical:
    """Return the policy of an actor whose parameters are its logits."""
    del obs
    return distrax.Categorical(logits=logits)


def critic_apply(value: jax.Array, obs: None) -> jax.Array:
    """Return the values of a critic whose parameters they are."""
    del obs
    return value


CONFIG = SimpleNamespace(
    system=SimpleNamespace(
        clip_eps=0.2,
        vf_coef=0.5,
        ent_coef=0.01,
        gamma=parts.GAMMA,
        gae_lambda=parts.LAMBDA,
        max_grad_norm=parts.MAX_NORM,
        reward_scale=1.0,
        standardize_advantages=True,
    )
)
"""The hyperparameters of `configs/system/ppo/ff_ppo.yaml`, which are triglot's too."""


def parts_of(checkout: Checkout) -> Mapping[str, Theirs]:
    """Build Stoix's parts."""
    ppo, losses = checkout.file(FILE), checkout.file("stoix/utils/loss.py")
    multistep, training = (checkout.file(f"stoix/utils/{n}.py") for n in ("multistep", "training"))
    bound = {name: losses.function(name) for name in ("ppo_clip_loss", "clipped_value_loss")}
    bound |= {"actor_apply_fn": actor_apply, "critic_apply_fn": critic_apply}
    actor_loss, critic_loss = (
        ppo.function(f"get_learner_fn._{name}_loss_fn", config=CONFIG, **bound)
        for name in ("actor", "critic")
    )

    def stoix_loss(batch: Batch) -> jax.Array:
        samples = parts.Samples.of(batch)
        policy_loss, _ = actor_loss(batch.logits, samples, batch.advantage)
        return policy_loss + critic_loss(batch.value, samples, batch.target)[0]

    estimator = "batch_truncated_generalized_advantage_estimation"
    gae = ppo.statements(
        ("advantages", "targets"),
        ("traj_batch",),
        scope="get_learner_fn._update_step",
        first=True,
        config=CONFIG,
        **{estimator: multistep.function(estimator)},
    )

    def stoix_gae(batch: Batch) -> dict[str, jax.Array]:
        cut = batch.truncated * (1 - batch.terminated)
        steps = SimpleNamespace(
            value=batch.value,
            reward=batch.reward,
            bootstrap_value=parts.successors(batch, cut > 0),
            done=batch.terminated,
            truncated=cut,
        )
        advantage, target = gae(steps)
        return {"advantage": advantage, "target": target}

    optimizers = ppo.statements(
        ("actor_optim", "critic_optim"),
        ("actor_lr", "critic_lr", "config"),
        scope="learner_setup",
    )
    rate_of = training.function("make_learning_rate_schedule")(
        parts.RATE, parts.UPDATES, 4, parts.STEPS_PER_UPDATE // 4
    )

    def stoix_rate(step: jax.Array) -> jax.Array:
        return jnp.asarray(rate_of(step))

    return {
        "ppo.loss": Theirs(
            stoix_loss,
            ("no_standardization",),
            lines={"no_standardization": ("stoix/utils/loss.py", "loss_actor1 = ratio * gae_t")},
        ),
        "ppo.gae": Theirs(stoix_gae, ("rollout_standardization",)),
        "ppo.optimizer": Theirs(
            parts.optax_step(*optimizers(parts.RATE, parts.RATE, CONFIG)),
            ("clip_each_network",),
            lines={"clip_each_network": (FILE, "critic_optim = optax.chain(")},
        ),
        "ppo.schedule": Theirs(stoix_rate),
    }


PROJECT = Project("Stoix", "Stoix", "https://github.com/EdanToledo/Stoix", parts_of)
