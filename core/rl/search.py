"""Tree search by mctx, of the environment itself or of a learned model."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from ..agent import Trajectory
from ..errors import require
from ..hyper import Number, between, only_for, positive, unit_interval
from ..networks.heads import num_actions
from ..specs import Spec
from ..types import PyTree, abstract_key, is_key, pytree_dataclass
from .exploration import mask_q
from .losses import gae, successor_values


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Static configuration of a tree search.

    Attributes:
      num_simulations: nodes that each search adds to its tree.
      gumbel: search by sequential halving with Gumbel noise (Danihelka et al. 2022), which improves
        the policy with few simulations too; otherwise by PUCT with Dirichlet noise.
      num_considered_actions: most actions tried at the root.
      num_sampling_moves: moves of an episode that are drawn from the visits while exploring; later
        ones are the most visited actions. None: all are drawn.
    """

    num_simulations: int = 32
    gumbel: bool = False
    num_considered_actions: int = only_for("gumbel", 16)
    num_sampling_moves: int | None = only_for("no_gumbel", between(None, 0))

    @property
    def no_gumbel(self) -> bool:
        """Whether the search is PUCT, whose options have no effect on the other."""
        return not self.gumbel


@pytree_dataclass
class SearchHyperparams:
    """Hyperparameters of a tree search: the first five of PUCT, the others of Gumbel search.

    Attributes:
      dirichlet_fraction: weight of the noise in the prior at the root while exploring.
      dirichlet_alpha: its concentration.
      temperature: of the visit counts from which actions are drawn while exploring: with
        probability proportional to N^(1 / temperature).
      pb_c_init, pb_c_base: c_1 and c_2 of PUCT, Schrittwieser et al. 2020, appendix B.
      gumbel_scale: of the Gumbel noise while exploring.
      value_scale, visit_offset: c_scale and c_visit of Danihelka et al. 2022, equation 8: how much
        the searched values weigh beside the prior policy.
    """

    dirichlet_fraction: Number = only_for("no_gumbel", unit_interval(0.25))
    dirichlet_alpha: Number = only_for("no_gumbel", positive(0.3))
    temperature: Number = only_for("no_gumbel", positive(1.0))
    pb_c_init: Number = only_for("no_gumbel", 1.25)
    pb_c_base: Number = only_for("no_gumbel", positive(19652.0))
    gumbel_scale: Number = 1.0
    value_scale: Number = 0.02
    visit_offset: Number = 50.0


@pytree_dataclass
class Node:
    """`N` nodes of search trees; `[N, ...]` each.

    Attributes:
      state: what the model needs to go on from here.
      logits: float32 `[N, num_actions]`, of the prior policy.
      value: float32 `[N]`, estimated.
      action_mask: bool `[N, num_actions]`, or None where all actions are allowed.
      reward: float32 `[N]`, of the step that led here.
      discount: float32 `[N]`, of `value`, seen from before that step; 0 after a termination,
        negative where `value` is the other player's.
    """

    state: PyTree
    logits: jax.Array
    value: jax.Array
    action_mask: jax.Array | None = None
    reward: jax.Array | None = None
    discount: jax.Array | None = None


@pytree_dataclass
class Found:
    """The result of a search at `N` roots.

    Attributes:
      action: int32 `[N]`.
      probs: float32 `[N, num_actions]`, the improved policy: the visits by PUCT, and by Gumbel
        softmax(logits + sigma(completed Q)) (Danihelka et al. 2022, equation 11).
      value: float32 `[N]`, of the root after the search.
      turn: float32 `[N]`, -1 where the other player moves after the action, else 1.
    """

    action: jax.Array
    probs: jax.Array
    value: jax.Array
    turn: jax.Array

    @property
    def extras(self) -> dict[str, jax.Array]:
        """What learning needs of it, for `PolicyOutput.extras`."""
        return {"probs": self.probs, "value": self.value, "turn": self.turn}


def search(
    root: Node,
    expand: Callable[[PyTree, jax.Array, jax.Array], Node],
    key: jax.Array,
    config: SearchConfig,
    hyper: SearchHyperparams,
    *,
    explore: bool,
    moves: jax.Array | None = None,
) -> Found:
    """Search from `N` roots at once.

    Args:
      root: without reward and discount.
      expand: `expand(state, action, key) -> node` takes one step from `N` nodes.
      key: a typed key, of which each simulation gets its own.
      config, hyper: of the search.
      explore: add noise at the root, and draw actions; otherwise the most visited is taken.
      moves: int32 `[N]`, earlier moves of each episode, of which `num_sampling_moves` are drawn.

    Returns:
      The actions, the improved policies and the values.

    Raises:
      MissingExtra: if mctx is not installed.

    Source: Schrittwieser et al. 2020, appendix B, https://arxiv.org/abs/1911.08265; Danihelka et
    al. 2022, sections 3 to 5, https://openreview.net/forum?id=bERaNdoegnO; both by mctx.
    """
    mctx = require("mctx", "search")

    def recurrent_fn(
        _: tuple[()], key: jax.Array, action: jax.Array, state: PyTree
    ) -> tuple[PyTree, PyTree]:
        typed = key if is_key(key) else jax.random.wrap_key_data(key)
        node = expand(state, action.astype(jnp.int32), typed)
        output = mctx.RecurrentFnOutput(
            reward=node.reward,
            discount=node.discount,
            prior_logits=mask_q(node.logits, node.action_mask),
            value=node.value,
        )
        return output, node.state

    logits, noise = root.logits, hyper.dirichlet_fraction if explore else 0.0
    if root.action_mask is not None and not config.gumbel:
        # mctx masks after its noise, which forbidden actions would take a share of.
        noise_key, key = jax.random.split(key)
        logits = mask_q(logits, root.action_mask)
        if explore:
            logits = _with_noise(noise_key, logits, root.action_mask, hyper)
        noise = 0.0
    search_args: dict[str, Any] = {
        "params": (),
        "rng_key": _untracked(key),
        "root": mctx.RootFnOutput(prior_logits=logits, value=root.value, embedding=root.state),
        "recurrent_fn": recurrent_fn,
        "num_simulations": config.num_simulations,
        "invalid_actions": None if root.action_mask is None else ~root.action_mask,
    }
    # mctx adds floats to counts, and whole numbers to arrays.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        if config.gumbel:
            output = mctx.gumbel_muzero_policy(
                **search_args,
                max_num_considered_actions=config.num_considered_actions,
                gumbel_scale=hyper.gumbel_scale if explore else 0.0,
                qtransform=functools.partial(
                    mctx.qtransform_completed_by_mix_value,
                    value_scale=hyper.value_scale,
                    maxvisit_init=hyper.visit_offset,
                ),
            )
        else:
            output = mctx.muzero_policy(
                **search_args,
                dirichlet_fraction=noise,
                dirichlet_alpha=hyper.dirichlet_alpha,
                pb_c_init=hyper.pb_c_init,
                pb_c_base=hyper.pb_c_base,
            )
        value = output.search_tree.summary().value
    probs, action = output.action_weights, output.action
    if not config.gumbel:
        action = jnp.argmax(probs, axis=-1)
    if explore and not config.gumbel:
        # With mctx's key, not by mctx: at high temperatures it draws actions of no visits too.
        draw_key, *_ = jax.random.split(search_args["rng_key"], 3)
        drawn = _drawn(draw_key, probs, hyper.temperature)
        limit = config.num_sampling_moves
        is_drawn = True if moves is None or limit is None else moves < limit
        action = jnp.where(is_drawn, drawn, action)
    action = action.astype(jnp.int32)
    # Every action that is chosen was tried. Where it ended the game, nothing follows.
    discounts = output.search_tree.children_discounts[:, output.search_tree.ROOT_INDEX]
    chosen = jnp.take_along_axis(discounts, action[:, None], axis=-1)[:, 0]
    turn = jnp.where(chosen < 0.0, -1.0, 1.0)
    return Found(action=action, probs=probs, value=value, turn=turn)


def search_targets_like(action_spec: Spec, num_envs: int) -> dict[str, jax.Array]:
    """Describe the extras that `with_search_targets` leaves in a trajectory, `[N, ...]` each."""
    probs = (num_envs, num_actions(action_spec, algorithm="a search"))
    return {"probs": jnp.zeros(probs), "target": jnp.zeros((num_envs,))}


def with_search_targets(
    trajectory: Trajectory,
    value_of: Callable[[PyTree], jax.Array],
    discount: Number,
    td_lambda: Number,
) -> Trajectory:
    """Compute what a network should learn of a rollout's searches.

    Args:
      trajectory: `[T, N]`, with the extras of `Found`.
      value_of: estimates V, float `[N]`, of observations `[N, ...]`: of the last step's successors,
        and where a time limit ended an episode; elsewhere the next search's value is known.
      discount, td_lambda: float `[]` within [0, 1].

    Returns:
      The trajectory with other extras: the searches' `probs` `[T, N, num_actions]`, and as `target`
      `[T, N]` the lambda-returns of the searches' values, see `gae`.
    """
    value, ended = trajectory.extras["value"], (trajectory.terminated, trajectory.truncated)
    successors = successor_values(value_of, value, trajectory.next_obs, *ended)
    turned = discount * trajectory.extras["turn"]
    _, target = gae(trajectory.reward, *ended, value, successors, turned, td_lambda)
    return replace(trajectory, extras={"probs": trajectory.extras["probs"], "target": target})


def mean_entropy(probs: jax.Array) -> jax.Array:
    """Average the entropies of policies `[..., num_actions]`, in nats."""
    return jnp.mean(jnp.sum(jax.scipy.special.entr(probs), axis=-1))


def _with_noise(
    key: jax.Array, logits: jax.Array, action_mask: jax.Array, hyper: SearchHyperparams
) -> jax.Array:
    """Mix Dirichlet noise over the allowed actions into the prior policy at the root.

    P(s, a) = (1 - dirichlet_fraction) p_a + dirichlet_fraction eta_a, with eta of the symmetric
    Dirichlet distribution over the actions allowed in s.

    Args:
      key: a typed key.
      logits: float32 `[N, num_actions]`, masked.
      action_mask: bool `[N, num_actions]`.
      hyper: with `dirichlet_fraction` and `dirichlet_alpha`.

    Returns:
      The logits of P, float32 `[N, num_actions]`.

    Source: Silver et al. 2017, https://doi.org/10.1038/nature24270, "Methods"; Silver et al. 2018.
    """
    # Independent gamma variables over their sum; a part of them has the distribution of that part.
    gamma = jax.random.loggamma(key, hyper.dirichlet_alpha, logits.shape, logits.dtype)
    eta = jax.nn.softmax(mask_q(gamma, action_mask))
    fraction = hyper.dirichlet_fraction
    return jnp.log((1.0 - fraction) * jax.nn.softmax(logits) + fraction * eta)


def _drawn(key: jax.Array, visits: jax.Array, temperature: Number) -> jax.Array:
    """Draw actions `[N]` with probability proportional to `visits^(1 / temperature)`.

    Source: Schrittwieser et al. 2020, https://arxiv.org/abs/1911.08265, appendix D.
    """
    logits = jnp.log(visits) - jnp.log(visits.max(axis=-1, keepdims=True))
    return jax.random.categorical(key, logits / temperature)


def _untracked(key: jax.Array) -> jax.Array:
    """Hide a key from JAX's checker of reuse, if it is one of the usual implementation.

    The checker refuses what mctx does at a node: at the root and below it, it breaks ties with the
    same key, in two branches of which one is kept.
    """
    usual = abstract_key().dtype == key.dtype
    return jax.random.key_data(key) if usual else key
