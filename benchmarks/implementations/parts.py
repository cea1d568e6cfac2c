"""The parts of an algorithm that are compared, with triglot's code for each.

A *switch* changes one detail of triglot's part to what another implementation does. With all
switches of a pair, `diff` must find both equivalent: so no difference is left that is not listed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import distrax
import jax
import jax.numpy as jnp
import optax

from triglot import rl
from triglot.algorithms.ppo import PPOHyperparams
from triglot.core.rl import optimizers
from triglot.core.types import PyTree
from triglot.diff.functions.algorithms import Reference, load_reference
from triglot.diff.functions.lifting import Batch

from .sources import Checkout

GAMMA, LAMBDA = 0.99, 0.95
RATE, UPDATES, STEPS_PER_UPDATE = 2.5e-4, 100, 16  # gradient steps in one update
MAX_NORM, ENTROPY_COEF = 0.5, 0.01


Function: TypeAlias = Callable[..., Any]
"""Of a batch and the constants of a part; returns a loss, or a dictionary of results."""
Switched: TypeAlias = Callable[[frozenset[str]], Function]
"""Builds triglot's function from the names of switches."""


class Switch(NamedTuple):
    """One detail.

    Attributes:
      text: what the other implementation does.
      causes: names of `diff` that are right for it.
      file, code: triglot's file and the text of its line, where `diff` names no line of it.
    """

    text: str
    causes: tuple[str, ...]
    file: str
    code: str


PPO_FILE, LOSSES = "algorithms/ppo.py", "core/rl/losses.py"
OPTIMIZERS, FAMILY = "core/rl/optimizers.py", "core/families/policy_gradient.py"
CLIPPED, SQUARED = ("def clipped_value_loss(", "rlax.l2_loss(errors)")
SWITCHES: Mapping[str, Switch] = {
    "unbiased_std": Switch(
        "the standard deviation of advantages divides by n - 1",
        ("degrees_of_freedom",),
        PPO_FILE,
        "advantage.std()",
    ),
    "double_value_loss": Switch(
        "no factor 1/2 in the value loss", ("constant",), PPO_FILE, "total = policy_loss"
    ),
    "no_value_clip": Switch("the value loss is not clipped", ("clipping",), LOSSES, CLIPPED),
    "clipped_value_alone": Switch(
        "the loss of the clipped value, without the maximum of both", ("clipping",), LOSSES, CLIPPED
    ),
    "no_entropy": Switch(
        "no entropy bonus", ("loss_term",), PPO_FILE, "entropy_coef: rl.NumberByEnvironment"
    ),
    "no_standardization": Switch(
        "the loss does not standardize advantages",
        ("standardization",),
        PPO_FILE,
        "advantage.std()",
    ),
    "rollout_standardization": Switch(
        "advantages are standardized over the rollout, not per minibatch",
        ("standardization",),
        PPO_FILE,
        "advantage.std()",
    ),
    "cut_at_truncation": Switch(
        "a time limit cuts off the bootstrap as a termination does",
        ("bootstrap_flag",),
        LOSSES,
        "terminated.astype(jnp.float32)",
    ),
    "adam_eps": Switch(
        "Adam's epsilon is 1e-8, not 1e-5", ("optimizer_epsilon",), FAMILY, "adam_eps: Number"
    ),
    "clip_by_element": Switch(
        "gradients are clipped element by element, not by their norm",
        ("gradient_clipping",),
        OPTIMIZERS,
        "optax.clip_by_global_norm",
    ),
    "no_gradient_clip": Switch(
        "gradients are not clipped", ("gradient_clipping",), FAMILY, "max_grad_norm: Number"
    ),
    "clip_each_network": Switch(
        "gradients of actor and critic are clipped by a norm of each",
        ("gradient_clipping",),
        OPTIMIZERS,
        "optax.clip_by_global_norm",
    ),
    "constant_rate": Switch(
        "the learning rate is constant", ("schedule_unit",), PPO_FILE, "linear(2.5e-4, 0)"
    ),
    "rate_after_rollout": Switch(
        "a learning rate that falls linearly is one update ahead, and 0 in the last",
        ("schedule_unit",),
        PPO_FILE,
        "linear(2.5e-4, 0)",
    ),
    "larger_rate": Switch(
        "the learning rate is 3e-4, not 2.5e-4", ("constant",), PPO_FILE, "linear(2.5e-4, 0)"
    ),
    "double_loss": Switch("no factor 1/2 in the loss", ("constant",), "algorithms/dqn.py", SQUARED),
    "huber": Switch("Huber's loss of the error", ("error_loss",), "algorithms/dqn.py", SQUARED),
    "double_q": Switch(
        "the online network chooses the action (double Q-learning)",
        ("greedy_action",),
        "algorithms/dqn.py",
        "jax.vmap(rlax.q_learning)",
    ),
    "log_temperature_loss": Switch(
        "the factor is the logarithm of the temperature",
        ("loss_weight",),
        "core/families/actor_critic.py",
        "return -value * jnp.mean(log_prob + wanted)",
    ),
}


@dataclass(frozen=True)
class Part:
    """A part of an algorithm.

    Attributes:
      title: its name on the page.
      inputs: as for `triglot diff --inputs`; Python numbers are constants.
      ours: builds triglot's function.
    """

    title: str
    inputs: Mapping[str, str | float]
    ours: Switched


@dataclass(frozen=True)
class Theirs:
    """A part of another implementation.

    Attributes:
      function: theirs, at triglot's hyperparameters.
      switches: with which triglot's part is the same.
      lines: by switch, a file of theirs and the text of its line, where `diff` names none of it.
      defaults: the same at their default hyperparameters; None if these change no result.
    """

    function: Function
    switches: Sequence[str] = ()
    lines: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    defaults: "Theirs | None" = None


class Steps(NamedTuple):
    """What PureJaxRL's and rejax's advantages read of a trajectory, `[T, N]` each."""

    done: jax.Array
    value: jax.Array
    reward: jax.Array

    @classmethod
    def of(cls, batch: Batch) -> "Steps":
        """Read them of a batch; a time limit ends an episode there."""
        return cls(jnp.maximum(batch.terminated, batch.truncated), batch.value, batch.reward)


class Samples(NamedTuple):
    """What the losses of PPO in JAX read of the policy that collected a batch, `[B]` each."""

    obs: None
    action: jax.Array
    log_prob: jax.Array
    value: jax.Array

    @classmethod
    def of(cls, batch: Batch) -> "Samples":
        """Read them of a batch."""
        return cls(None, batch.action, batch.old_log_prob, batch.old_value)


def policy_of(outputs: Mapping[str, jax.Array]) -> distrax.Distribution:
    """Build the policy of a network's outputs, as PureJaxRL and rejax do."""
    if "logits" in outputs:
        return distrax.Categorical(logits=outputs["logits"])
    return distrax.MultivariateNormalDiag(outputs["mean"], jnp.exp(outputs["log_std"]))


class Project(NamedTuple):
    """Another implementation.

    Attributes:
      name: its name.
      folder: the checkout's folder.
      url: its page.
      parts: builds its parts, by names of `PARTS`.
      in_torch: whether its code is of PyTorch.
    """

    name: str
    folder: str
    url: str
    parts: Callable[[Checkout], Mapping[str, Theirs]]
    in_torch: bool = False


def _call(reference: Reference, batch: Batch, **changed: jax.Array) -> jax.Array:
    """Call a built-in loss with the arrays of a batch, some of which are changed."""
    given = {**batch, **changed}
    return reference.function(*(given[name] for name in reference.arguments.names))


def _discount(batch: Batch, switches: frozenset[str]) -> jax.Array:
    """Return the factors `[B]` of what follows a step."""
    if "cut_at_truncation" in switches:
        return GAMMA * (1 - jnp.maximum(batch.terminated, batch.truncated))
    return GAMMA * (1 - batch.terminated)


def _ppo_loss(name: str) -> Switched:
    """Return what builds the loss of discrete or of continuous actions.

    Args:
      name: `algorithm:ppo` or `algorithm:ppo.continuous`.
    """

    def build(switches: frozenset[str]) -> Function:
        entropy_coef = 0.0 if "no_entropy" in switches else ENTROPY_COEF
        options = {
            f"entropy_coef={entropy_coef}": True,
            "value_coef=1.0": "double_value_loss" in switches,
            "clip_value=false": {"no_value_clip", "clipped_value_alone"} & switches,
            "normalize_advantage=false": {"no_standardization", "unbiased_std"} & switches,
        }
        reference = load_reference(
            ",".join([name, *(text for text, chosen in options.items() if chosen)])
        )

        def ppo_loss(batch: Batch) -> jax.Array:
            advantage, value = batch.advantage, batch.value
            if "unbiased_std" in switches:
                advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
            if "clipped_value_alone" in switches:
                value = batch.old_value + jnp.clip(value - batch.old_value, -0.2, 0.2)
            return _call(reference, batch, advantage=advantage, value=value)

        return ppo_loss

    return build


def successors(batch: Batch, truncated: jax.Array) -> jax.Array:
    """Return the values of the true successors, `[T, N]`: of the last one at a time limit."""
    following = jnp.concatenate([batch.value[1:], batch.last_value[None]])
    return jnp.where(truncated, batch.final_value, following)


def _ppo_gae(switches: frozenset[str]) -> Function:
    def ppo_gae(batch: Batch) -> dict[str, jax.Array]:
        ended = batch.terminated > 0
        cut = (batch.truncated > 0) & ~ended
        if "cut_at_truncation" in switches:
            ended, cut = ended | cut, jnp.zeros_like(cut)
        next_value = successors(batch, cut)
        advantage, target = rl.gae(batch.reward, ended, cut, batch.value, next_value, GAMMA, LAMBDA)
        if "rollout_standardization" in switches:
            variance = jnp.maximum(jnp.mean(advantage**2) - advantage.mean() ** 2, 0)
            advantage = (advantage - advantage.mean()) * jax.lax.rsqrt(variance + 1e-5)
        return {"advantage": advantage, "target": target}

    return ppo_gae


def stepped(transform: optax.GradientTransformation, trees: Sequence[PyTree], step: int) -> PyTree:
    """Take one step of an optax optimizer that has Adam's averages.

    Args:
      transform: the optimizer.
      trees: parameters, gradients, and Adam's averages of these and of their squares.
      step: the number of this step, from 1.

    Returns:
      The new parameters.
    """
    params, gradients, means, squares = trees
    with jax.numpy_dtype_promotion("standard"):
        state = optax.tree.set(
            transform.init(params), count=jnp.int32(step - 1), mu=means, nu=squares
        )
        updates, _ = transform.update(gradients, state, params)
        return optax.apply_updates(params, updates)


def optax_step(
    actor_transform: optax.GradientTransformation,
    critic_transform: optax.GradientTransformation | None = None,
) -> Function:
    """Build the function of `ppo.optimizer` from optax optimizers.

    Args:
      actor_transform: the optimizer of all parameters, or of the actor's if there are two.
      critic_transform: the optimizer of the critic's parameters; None for one of all.
    """

    def optimizer_step(batch: Batch, step: int) -> PyTree:
        names, columns = ("actor", "critic"), ("", "grad_", "mean_", "square_")
        if critic_transform is not None:
            transforms = dict(zip(names, (actor_transform, critic_transform), strict=True))
            return {
                name: stepped(transform, [batch[column + name] for column in columns], step)
                for name, transform in transforms.items()
            }
        trees = [{name: batch[column + name] for name in names} for column in columns]
        return stepped(actor_transform, trees, step)

    return optimizer_step


def _ppo_optimizer(switches: frozenset[str]) -> Function:
    eps = 1e-8 if "adam_eps" in switches else 1e-5
    hyper: Any = PPOHyperparams(learning_rate=RATE, max_grad_norm=MAX_NORM, adam_eps=eps)
    whole, adam = optimizers.adam(hyper), optax.adam(RATE, eps=eps)
    if "clip_by_element" in switches:
        return optax_step(optax.chain(optax.clip(MAX_NORM), adam))
    if "no_gradient_clip" in switches:
        return optax_step(adam)
    return optax_step(whole, whole) if "clip_each_network" in switches else optax_step(whole)


def _ppo_schedule(switches: frozenset[str]) -> Function:
    rate = 3e-4 if "larger_rate" in switches else RATE
    schedule = rl.schedule(f"linear({rate}, 0)").over(UPDATES)

    def ppo_schedule(step: jax.Array) -> jax.Array:
        if "constant_rate" in switches:
            return jnp.asarray(rate)
        ahead = 1 if "rate_after_rollout" in switches else 0
        return schedule.at(step // STEPS_PER_UPDATE + ahead, 0.0)

    return ppo_schedule


def _dqn_loss(switches: frozenset[str]) -> Function:
    options = {
        "huber=true": "huber" in switches,
        "double=true": "double_q" in switches,
    }
    reference = load_reference(
        ",".join(["algorithm:dqn", *(text for text, chosen in options.items() if chosen)])
    )

    def dqn_loss(batch: Batch) -> jax.Array:
        weight = jnp.ones_like(batch.reward)
        loss = _call(reference, batch, discount=_discount(batch, switches), weight=weight)
        return 2 * loss if "double_loss" in switches else loss

    return dqn_loss


def _sac_critic(switches: frozenset[str]) -> Function:
    reference = load_reference("algorithm:sac.critic")

    def sac_critic_loss(batch: Batch) -> jax.Array:
        loss = _call(reference, batch, discount=_discount(batch, switches))
        return 2 * loss if "double_loss" in switches else loss

    return sac_critic_loss


def _sac_actor(switches: frozenset[str]) -> Function:
    del switches
    reference = load_reference("algorithm:sac.actor")

    def sac_actor_loss(batch: Batch) -> jax.Array:
        return _call(reference, batch)

    return sac_actor_loss


def _sac_temperature(switches: frozenset[str]) -> Function:
    reference = load_reference("algorithm:sac.temperature")

    def sac_temperature_loss(batch: Batch) -> jax.Array:
        loss = _call(reference, batch)
        if "log_temperature_loss" in switches:
            return loss * jnp.exp(-batch.log_temperature) * batch.log_temperature
        return loss

    return sac_temperature_loss


OPTIMIZER_INPUTS: Mapping[str, str | float] = {
    "actor": "param:6,5",
    "critic": "param:5",
    "grad_actor": "gradient:6,5",
    "grad_critic": "gradient:5",
    "mean_actor": "gradient:6,5",
    "mean_critic": "gradient:5",
    "square_actor": "square:6,5",
    "square_critic": "square:5",
    "step": 7,
}
OF_SAMPLES: Mapping[str, str | float] = {
    "value": "param:32",
    "old_log_prob": "log_prob:32",
    "old_value": "value:32",
    "advantage": "advantage:32",
    "target": "return:32",
}
PARTS: Mapping[str, Part] = {
    "ppo.loss": Part(
        "PPO: loss",
        {"logits": "param:32,3", "action": "action:32:0..2", **OF_SAMPLES},
        _ppo_loss("algorithm:ppo"),
    ),
    "ppo.continuous": Part(
        "PPO: loss of continuous actions",
        {
            "mean": "param:32,2",
            "log_std": "param:32,2",
            "action": "value:32,2",
            **OF_SAMPLES,
        },
        _ppo_loss("algorithm:ppo.continuous"),
    ),
    "ppo.gae": Part(
        "PPO: advantages",
        {
            "reward": "reward:8,4",
            "value": "value:8,4",
            "last_value": "value:4",
            "final_value": "value:8,4",
            "terminated": "flag:8,4",
            "truncated": "flag:8,4",
        },
        _ppo_gae,
    ),
    "ppo.optimizer": Part("PPO: optimizer step", OPTIMIZER_INPUTS, _ppo_optimizer),
    "ppo.schedule": Part("PPO: learning rate", {"step": "step:"}, _ppo_schedule),
    "dqn.loss": Part(
        "DQN: loss",
        {
            "q": "param:32,3",
            "next_q": "value:32,3",
            "next_target_q": "value:32,3",
            "action": "action:32:0..2",
            "reward": "reward:32",
            "terminated": "flag:32",
            "truncated": "flag:32",
        },
        _dqn_loss,
    ),
    "sac.critic": Part(
        "SAC: critic's loss",
        {
            "q": "param:2,32",
            "next_target_q": "value:2,32",
            "next_log_prob": "log_prob:32",
            "log_temperature": "value:",
            "reward": "reward:32",
            "terminated": "flag:32",
            "truncated": "flag:32",
        },
        _sac_critic,
    ),
    "sac.actor": Part(
        "SAC: actor's loss",
        {"log_prob": "param:32", "q": "param:2,32", "log_temperature": "value:"},
        _sac_actor,
    ),
    "sac.temperature": Part(
        "SAC: temperature's loss",
        {"log_temperature": "param:", "log_prob": "log_prob:32"},
        _sac_temperature,
    ),
}
