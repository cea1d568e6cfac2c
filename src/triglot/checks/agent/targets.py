"""Checks of what targets are made of, on a network separated by observation."""

from collections.abc import Callable
from dataclasses import Field, is_dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jax.tree_util import KeyEntry

from ...core import specs
from ...core.hyper import first_numbers
from ...core.options import has_options, option_fields
from ...core.types import AnyAgentState, AnyConfig, PyTree, by_path
from ..report import Checklist, Failed, NotApplicable
from ..trees import find_value_difference, is_inexact
from .feeder import LearningCase
from .learning import other_value
from .separate import CONSTANTS, ROWS
from .worlds import TOLERANCE, EpisodeCase, Runs, effects

CHECKS: Checklist[LearningCase] = Checklist(needs=["later episodes", "last steps"])

DISCOUNT = 0.7  # its square and 1 are far from it
POLICY_HEADS = ("logits", "mean", "log_std", "action")
FORBIDDEN = 3.0  # added to the value of an action that is not allowed


@CHECKS.check()
def _successors(case: LearningCase) -> str:
    """Is nothing learned of a true successor that is not observed itself?

    Why: A target with a gradient also moves the value that it bootstraps from towards the present
    one; that is another algorithm (residual gradients), which learns more slowly.

    Fix: Compute targets and advantages before the loss, or use jax.lax.stop_gradient. If the agent
    learns from successors on purpose, as a model does, declare learns_from_next_obs = True.
    """
    episodes = EpisodeCase.of(case)
    if episodes.agent.learns_from_next_obs:
        raise NotApplicable("the agent declares learns_from_next_obs = True.")
    world = episodes.worlds["truncated", "nothing"]
    only_next = np.setdiff1d(world.next_obs, world.obs)
    for run in episodes.learned["truncated", "nothing"]:
        for path, rows in run.items():
            if rows[only_next].any():
                raise Failed(
                    f"{_short(path)} changed for observations that are only the next_obs of a "
                    "step that ends an episode."
                )
    return episodes.compared("compared for the successors of last steps")


@CHECKS.check()
def _discount(case: LearningCase) -> str:
    """Is the value after a truncated step multiplied by hyper.discount once?

    Why: Applied twice, it halves the horizon; left out, values grow without bound.

    Fix: target = reward + hyper.discount * value(next_obs), with nothing else multiplied.
    """
    episodes = EpisodeCase.of(case)
    agent, hyper = episodes.agent, episodes.agent.hyper
    if not agent.bootstraps or not is_dataclass(hyper) or not hasattr(hyper, "discount"):
        raise NotApplicable("not checked: it does not bootstrap, or has no hyper.discount.")
    other: Any = replace(cast(Any, hyper), discount=DISCOUNT)
    state = agent.init(case.key(71), agent.num_envs, other)
    base = episodes.worlds["truncated", "nothing"]
    at_end = episodes.time == episodes.cut
    step = 0.01
    paid = episodes.learn(replace(base, reward=base.reward + step * at_end), state)
    index = base.next_obs[at_end]
    valued = episodes.learn(base, _with_constants(state, lambda rows: rows.at[index].add(step)))
    ratios = []
    for base_rows, by_reward, by_value in zip(
        episodes.learn(base, state), paid, valued, strict=True
    ):
        for path, rows in base_rows.items():
            effect = (by_reward[path] - rows)[base.obs[at_end]].ravel()
            change = (by_value[path] - rows)[base.obs[at_end]].ravel()
            large = np.abs(effect) > 1e-2 * np.abs(effect).max(initial=1e-30)
            ratios += (change[large] / effect[large]).tolist()
    ratio_array = np.asarray(ratios)
    # Not so of distributions, and of values that are rescaled.
    if not len(ratio_array) or np.ptp(ratio_array) > 0.05 or abs(np.median(ratio_array)) < 0.05:
        raise NotApplicable("not checked: its targets are not linear in the values of next_obs.")
    ratio = float(np.median(ratio_array))
    for wrong, words in ((1.0, "was not multiplied by it"), (DISCOUNT**2, "was multiplied twice")):
        if abs(ratio - wrong) < 0.02:
            raise Failed(f"with hyper.discount = {DISCOUNT}, the value of next_obs {words}.")
    return f"a value of next_obs counts {ratio:.2f} times a reward, with discount {DISCOUNT}"


@CHECKS.check()
def _next_action_mask(case: LearningCase) -> str:
    """Is the value of an action that next_action_mask forbids without effect?

    Why: A maximum over actions that cannot be taken learns values that are never reached.

    Fix: Apply trajectory.next_action_mask before the maximum or the expectation over next values:
    triglot.rl.mask_q(next_q, next_action_mask).
    """
    episodes = EpisodeCase.of(case)
    spec = case.env.action_spec
    if case.inputs.action_mask is None or not isinstance(spec, specs.Discrete):
        raise NotApplicable("the environment has no action mask over discrete actions.")
    base, count = episodes.worlds["truncated", "nothing"], spec.num_values
    at_end = episodes.time == episodes.cut
    mask = np.ones((*episodes.shape, count), bool)
    mask[at_end] = np.arange(count) == 0
    index = base.next_obs[at_end]

    def raised(rows: jax.Array) -> jax.Array:
        axes = [axis for axis in range(1, rows.ndim) if rows.shape[axis] == count]
        if not axes:
            return rows
        forbidden = (jnp.arange(count) > 0).reshape(-1, *(1,) * (rows.ndim - 1 - axes[0]))
        return rows.at[index].add(FORBIDDEN * forbidden.astype(rows.dtype))

    state = _with_constants(episodes.state, raised)
    effect = effects(episodes.learn(base, None, mask), episodes.learn(base, state, mask))
    if (effect[base.obs] > TOLERANCE).any():
        raise Failed(
            "with other outputs for actions that next_action_mask forbids, it learned something "
            "else."
        )
    return episodes.compared("compared with other outputs for forbidden next actions")


@CHECKS.check()
def _entropy(case: LearningCase) -> str:
    """Does a larger hyper.entropy_coef leave a policy of higher entropy?

    Why: With the wrong sign the bonus makes the policy deterministic within a few updates.

    Fix: loss = policy_loss + ... - hyper.entropy_coef * entropy.
    """
    episodes = EpisodeCase.of(case)
    agent, hyper = episodes.agent, episodes.agent.hyper
    if not is_dataclass(hyper) or getattr(hyper, "entropy_coef", None) is None:
        raise NotApplicable("it has no hyper.entropy_coef.")
    world = episodes.worlds["nowhere", "nothing"]
    learned: list[Runs] = []
    for coef in (0.0, 1.0):
        other: Any = replace(cast(Any, hyper), entropy_coef=coef)
        state = agent.init(case.key(71), agent.num_envs, other)
        learned.append(episodes.learn(world, state))
    slopes = []
    for path, constants in by_path(episodes.state).items():
        *_, kind, head = path.split(".")
        if (kind, head) != (CONSTANTS, "logits"):
            continue
        slope = np.asarray(jax.grad(_entropy_of)(constants))[:-1]
        rows = path.replace(".state.", ".params.").replace(CONSTANTS, ROWS)
        if rows in learned[0][0]:
            slopes.append(np.sum((learned[1][0][rows] - learned[0][0][rows]) * slope))
    if not slopes:
        raise NotApplicable("not checked: it has no head `logits`.")
    if max(slopes) < 0:
        raise Failed("with hyper.entropy_coef = 1 in place of 0, the policy's entropy decreased.")
    return "compared: the policy after updates with hyper.entropy_coef 0 and 1"


def unused_hyperparameters(case: LearningCase) -> list[str]:
    """List the hyperparameters on which neither `act` nor `update` depends.

    Those that are declared to have no effect with this configuration are left out. Others may be
    of another kind of actions, or of a setting, so that this is no mistake by itself.
    """
    agent, state = case.agent, case.initial_state
    hyper = jax.tree.map(jnp.asarray, first_numbers(agent.hyper))
    idle = (
        {field.name for field in option_fields(hyper) if _may_be_idle(field, agent.config)}
        if has_options(hyper)
        else set()
    )
    leaves, treedef = jax.tree.flatten(hyper)
    # Computed before something is traced.
    acts = [(call.function, list(call.args.values())[1:]) for call in case.acts.values()]
    args = list(case.update.args.values())[1:]

    def effects(state: AnyAgentState) -> PyTree:
        return agent.update(state, *args)[0], [
            act(state, *args_of_act) for act, args_of_act in acts
        ]

    jaxpr, shapes = jax.make_jaxpr(effects, return_shape=True)(state)
    inputs, outputs = list(by_path(state)), list(by_path(shapes[0]))
    num_others = len(jaxpr.out_avals) - len(outputs)
    before = agent.init(case.key(1), case.num_envs, hyper)
    unused = []
    for index, path in enumerate(by_path(hyper)):
        if path.split(".")[0] in idle:
            continue
        changed = [other_value(leaf) if i == index else leaf for i, leaf in enumerate(leaves)]
        after = by_path(agent.init(case.key(1), case.num_envs, treedef.unflatten(changed)))
        changing = {name for name, leaf in by_path(before).items() if _differs(leaf, after[name])}
        wanted = [name not in changing for name in outputs] + [True] * num_others
        _, used = partial_eval.dce_jaxpr(jaxpr.jaxpr, wanted)
        if not any(used[i] for i, name in enumerate(inputs) if name in changing):
            unused.append(path)
    return unused


def _may_be_idle(field: Field[Any], config: AnyConfig) -> bool:
    """Tell whether a hyperparameter is declared to have no effect with such a configuration."""
    reader = field.metadata.get("only_for")
    if reader in ("optimizer", "networks"):
        return True
    return reader is not None and not getattr(config, reader, True)


def _differs(one: jax.Array, other: jax.Array) -> bool:
    return is_inexact(one) and bool(find_value_difference("", one, other))


def _entropy_of(logits: jax.Array) -> jax.Array:
    """Sum the entropies of policies `[P, A]`."""
    return jax.scipy.special.entr(jax.nn.softmax(logits)).sum()


def _short(path: str) -> str:
    return path.replace(f".{ROWS}", "")


def _with_constants(
    state: AnyAgentState, change: Callable[[jax.Array], jax.Array]
) -> AnyAgentState:
    """Change the constant outputs for each observation, of all networks of a state but policies."""

    def changed(path: tuple[KeyEntry, ...], leaf: jax.Array) -> jax.Array:
        names = jax.tree_util.keystr(path, simple=True, separator=".").split(".")
        if CONSTANTS not in names or names[-1] in POLICY_HEADS:
            return leaf
        return change(leaf)

    return jax.tree_util.tree_map_with_path(changed, state)
