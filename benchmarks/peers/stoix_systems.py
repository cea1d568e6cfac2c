"""Which of Stoix's systems has an algorithm, its words for triglot's options, and how it acts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from triglot.core.types import PyTree

from .row import Options


def by_mode(made: Sequence[Any], params: PyTree, obs: jax.Array) -> jax.Array:
    """Take the most likely action of the network that `learner_setup` made."""
    return made[1].apply(params, obs).mode()


def by_noisy_mode(made: Sequence[Any], params: PyTree, obs: jax.Array) -> jax.Array:
    """Take the best action by noisy layers, whose noise has no switch; it is one draw."""
    return made[1].apply(params, obs, rngs={"noise": jax.random.PRNGKey(0)}).mode()


def by_recurrent_mode(
    made: Sequence[Any], params: PyTree, obs: jax.Array, memory: PyTree
) -> tuple[jax.Array, PyTree]:
    """Take the best action by a recurrent network, within one episode; returns its memory too."""
    resets = jnp.zeros((1, len(obs)), bool)
    memory, distribution = made[1].apply(params, memory, (obs[None], resets))
    return distribution.mode()[0], memory


def by_prior(made: Sequence[Any], params: PyTree, obs: jax.Array) -> jax.Array:
    """Take the most likely action of the policy's network, without a search."""
    return jnp.argmax(made[1](params, obs, (), jax.random.PRNGKey(0)).prior_logits, axis=-1)


def by_search(made: Sequence[Any], params: PyTree, obs: jax.Array) -> jax.Array:
    """Take the action that a search visits most, without noise."""
    key = jax.random.PRNGKey(0)
    found = made[2](params, key, made[1](params, obs, (), key), dirichlet_fraction=0.0)
    return jnp.argmax(found.action_weights, axis=-1)


@dataclass(frozen=True, kw_only=True)
class System:
    """One of Stoix's systems.

    Attributes:
      module: below `stoix.systems`; its last word names its configuration too.
      names: of triglot's options, where they differ from the column of `NAMES`; none where it does
        not have the option.
      torsos: networks that get the row's `hidden_sizes`, as `network.NAME.layer_sizes`.
      activation: of these.
      options: set after the row's, in Stoix's words; each may be a function of the row's setting.
      num_keys: random keys that `learner_setup` takes.
      plans: whether it takes the environment as a model too.
      state: place of the learner's state among what it returns.
      params: what acts, of the state's parameters: names divided by dots, or nothing for all.
      act: `act(made, params, obs [N, ...])` gives greedy actions, with `made` what it returned.
      memory: place of the recurrent layer, of which `act` gets and returns the memory too.
    """

    module: str
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    torsos: tuple[str, ...] = ("actor_network.pre_torso",)
    activation: str = "relu"
    options: Options = field(default_factory=dict)
    num_keys: int = 3
    plans: bool = False
    state: int = 2
    params: str = "online"
    act: Callable[..., Any] = by_mode
    memory: int | None = None


ACTOR_CRITIC = ("actor_network.pre_torso", "critic_network.pre_torso")
ACTOR_Q = ("actor_network.pre_torso", "q_network.pre_torso")
BOTH_RATES = {"learning_rate": ("system.actor_lr", "system.critic_lr")}
OWN_RATES = {"learning_rate": ("system.actor_lr",), "critic_learning_rate": ("system.q_lr",)}
Q_RATE = {"learning_rate": ("system.q_lr",)}
SEQUENCE = 16  # steps that follow each other in a sample, where Stoix has no single ones
BINNED = ("critic", "reward")


def inverse_softplus(option: str) -> Callable[[Options], float]:
    """Give what a softplus makes an option's value, as Stoix stores multipliers."""
    return lambda given: math.log(math.expm1(given[option]))


SYSTEMS: Mapping[str, System] = {
    "ppo": System(
        module="ppo.anakin.ff_ppo",
        names=BOTH_RATES,
        torsos=ACTOR_CRITIC,
        activation="tanh",
        params="actor_params",
    ),
    "reinforce": System(
        module="vpg.ff_reinforce",
        names=BOTH_RATES,
        torsos=ACTOR_CRITIC,
        activation="tanh",
        options={"system.ent_coef": 0.0},
        params="actor_params",
    ),
    "vmpo": System(
        module="mpo.ff_vmpo",
        names={**BOTH_RATES, "num_minibatches": (), "value_coef": ()},  # it has 1 of either
        torsos=ACTOR_CRITIC,
        activation="tanh",
        options={
            "system.init_log_temperature": inverse_softplus("initial_temperature"),
            "system.init_log_alpha": inverse_softplus("initial_multiplier"),
            # It counts gradient steps, triglot updates.
            "system.actor_target_period": lambda g: g["target_update_period"] * g["num_epochs"],
        },
        params="actor_params.online",
    ),
    "c51": System(module="q_learning.ff_c51", names=Q_RATE, num_keys=2),
    "qr_dqn": System(module="q_learning.ff_qr_dqn", names=Q_RATE, num_keys=2),
    "rainbow": System(
        module="q_learning.ff_rainbow",
        names=Q_RATE,
        options={"network.actor_network.action_head.layer_sizes": []},
        act=by_noisy_mode,
    ),
    "r2d2": System(
        module="q_learning.rec_r2d2",
        names=Q_RATE,
        options={
            "network.actor_network.pre_torso.use_layer_norm": False,
            "network.actor_network.post_torso.layer_sizes": [],
            "network.actor_network.action_head.layer_sizes": [],
            "network.actor_network.action_head.use_layer_norm": False,
            "network.actor_network.rnn_layer.cell_type": lambda g: g["cell"],
            "system.period": lambda g: g["rollout_length"],
            "system.sample_sequence_length": lambda g: g["burn_in_length"] + g["unroll_length"],
        },
        num_keys=2,
        act=by_recurrent_mode,
        memory=3,
    ),
    "ddpg": System(
        module="ddpg.ff_ddpg",
        names=OWN_RATES,
        torsos=ACTOR_Q,
        options={"system.max_grad_norm": 1e9},  # which triglot's does not clip
        params="actor_params.online",
    ),
    "mpo": System(
        module="mpo.ff_mpo_continuous",
        names=OWN_RATES,
        torsos=ACTOR_Q,
        options={
            "system.max_grad_norm": 1e9,
            # As many transitions as triglot's single ones, with targets of one step.
            "system.sample_sequence_length": SEQUENCE + 1,
            "system.total_batch_size": lambda given: given["batch_size"] // SEQUENCE,
            "system.gae_lambda": 0.0,
            "system.init_log_temperature": inverse_softplus("initial_temperature"),
            "system.init_log_alpha_mean": inverse_softplus("initial_multiplier"),
            "system.init_log_alpha_stddev": inverse_softplus("initial_multiplier"),
        },
        params="actor_params.online",
    ),
    "alphazero": System(
        module="search.ff_az",
        names=BOTH_RATES,
        torsos=ACTOR_CRITIC,
        options={
            # As many steps as triglot's single ones.
            "system.sample_sequence_length": SEQUENCE,
            "system.total_batch_size": lambda given: given["batch_size"] // SEQUENCE,
        },
        plans=True,
        state=3,
        params="",
        act=by_prior,
    ),
    "muzero": System(
        module="search.ff_mz",
        names={"learning_rate": ("system.lr",)},
        torsos=(*ACTOR_CRITIC, "wm_network.obs_encoder", "wm_network.reward_torso"),
        options={
            "system.sample_sequence_length": lambda given: given["unroll_steps"] + 1,
            "system.n_steps": lambda given: given["unroll_steps"],
            **{f"system.{part}_vmin": lambda g: -g["support"] for part in BINNED},
            **{f"system.{part}_vmax": lambda g: g["support"] for part in BINNED},
            **{f"system.{part}_num_atoms": lambda g: g["num_bins"] for part in BINNED},
            "network.wm_network.rnn_size": lambda given: given["latent_size"],
            "network.wm_network.num_stacked_rnn_layers": 1,
        },
        num_keys=4,
        state=3,
        params="",
        act=by_search,
    ),
}
