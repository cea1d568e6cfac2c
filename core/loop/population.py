"""Population-based training: the worst members copy better ones and change their hyperparameters.

Source: Jaderberg et al. 2017, "Population Based Training of Neural Networks",
https://arxiv.org/abs/1711.09846, algorithm 1 with truncation selection (appendix A.1.1).
Differences: all members exploit at the same update, inside the compiled program, where they are the
vmapped seeds; a copied member's environments and replay are copied too, since its normalization,
recurrent carry and replay belong to them; a member copies a strictly better one only.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from ..agent import Agent
from ..errors import TriglotError, check_known, counted, shown, unknown
from ..hyper import Range, allowed_by, check_count, is_number, to_float32
from ..options import option_fields, replace_options
from ..rl.schedules import Schedule
from ..types import AnyHyperparams, pytree_dataclass
from .rollout import EpisodeStats
from .state import RunnerState, Updated

SELECTIONS = ("truncation", "rank")
FACTORS = (0.8, 1.2)
FORM = "NAME, NAME=LOW..HIGH or NAME=log:LOW..HIGH"
# A metric, so that the lineage is resumed, and cut back, with the other metrics.
PARENT = "parent"
# Folded into keys; updates fold in numbers below 2^31.
_INITIAL, _SELECTION = 2**32 - 1, 2**32 - 2


@dataclass(frozen=True)
class Perturbed:
    """A hyperparameter that a population changes.

    Attributes:
      name: of the hyperparameter.
      low, high: what it is clipped to.
      initial: how members start: with the given number (`given`), or drawn between `low` and
        `high`, `uniform` or `log` uniform.
    """

    name: str
    low: float
    high: float
    initial: str = "given"


@dataclass(frozen=True, kw_only=True)
class Population:
    """How the seeds of a training, the members, learn from each other.

    Attributes:
      size: number of members.
      exploit_every: updates between two generations.
      perturb: hyperparameters that are changed, each `NAME`, which starts with the given number, or
        `NAME=LOW..HIGH` or `NAME=log:LOW..HIGH`, which is drawn for each member and stays within.
      fraction: of the members that copy another one, within (0, 0.5]; at least one.
      selection: `truncation`: each of the worst copies one of the best, drawn uniformly; `rank`:
        the worst copies the best, the second worst the second best, and so on.
      perturbed: as `perturb`, read and checked by `for_agent`.
    """

    size: int
    exploit_every: int = 20
    perturb: Sequence[str] = ()
    fraction: float = 0.2
    selection: str = "truncation"
    perturbed: tuple[Perturbed, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "perturb", tuple(self.perturb))
        check_count("population", self.size, 2)
        check_count("exploit_every", self.exploit_every)
        check_known("selection", self.selection, SELECTIONS)
        if not (is_number(self.fraction) and 0 < self.fraction <= 0.5):
            raise TriglotError(
                f"the fraction of a population that copies must be above 0 and at most 0.5, got "
                f"{shown(self.fraction)}."
            )

    @property
    def num_copied(self) -> int:
        """Members that copy another one in a generation."""
        return max(1, int(self.fraction * self.size))

    def describe(self) -> str:
        """Say in a line what a generation does."""
        names = ", ".join(perturbed.name for perturbed in self.perturbed)
        return (
            f"population of {self.size:,}: every {counted(self.exploit_every, 'update')}, up to "
            f"{counted(self.num_copied, 'member')} can copy better ones and change {names}"
        )

    def for_agent(
        self, agent: Agent, hyper: AnyHyperparams = None, num_updates: int | None = None
    ) -> "Population":
        """Check it against an agent, and read `perturb`.

        Args:
          agent: the algorithm.
          hyper: the hyperparameters of the training; None for the agent's own.
          num_updates: updates of the training.

        Raises:
          TriglotError: if a name is unknown, static, or cannot be multiplied, a range is invalid,
            or the training ends before the first generation.
        """
        hyper = agent.hyper if hyper is None else hyper
        read = tuple(_read(text, agent, hyper) for text in self.perturb)
        if not read:
            names = ", ".join(field.name for field in option_fields(agent.Hyperparams))
            raise TriglotError(
                f"a population needs hyperparameters to perturb, such as learning_rate: {names}."
            )
        for perturbed in read:
            if [other.name for other in read].count(perturbed.name) > 1:
                raise TriglotError(f"perturb has {perturbed.name} twice: give it once.")
        if num_updates is not None and self.exploit_every > num_updates:
            raise TriglotError(
                f"exploit_every must be at most the updates of the training, {num_updates:,}; got "
                f"{self.exploit_every:,}."
            )
        return replace(self, perturbed=read)

    def draw(self, key: jax.Array, hyper: AnyHyperparams) -> AnyHyperparams:
        """Draw a member's initial hyperparameters.

        Args:
          key: the member's own.
          hyper: the given ones, which those without a range keep.
        """
        keys = jax.random.split(jax.random.fold_in(key, _INITIAL), len(self.perturbed))
        drawn = {}
        for perturbed, own_key in zip(self.perturbed, keys, strict=True):
            if perturbed.initial == "given":
                continue
            convert, back = (
                (math.log, jnp.exp) if perturbed.initial == "log" else (float, jnp.asarray)
            )
            low, high = convert(perturbed.low), convert(perturbed.high)
            number = back(jax.random.uniform(own_key, (), jnp.float32, low, high))
            drawn[perturbed.name] = jnp.clip(number, perturbed.low, perturbed.high)
        return replace_options(hyper, drawn) if drawn else hyper

    def values(self, state: RunnerState) -> dict[str, jax.Array]:
        """Return the current values of what is perturbed, for the metrics."""
        return {
            perturbed.name: getattr(state.agent.hyper, perturbed.name)
            for perturbed in self.perturbed
        }


@pytree_dataclass
class Member:
    """What the selection reads of a member; float32 `[]` each.

    Attributes:
      num_episodes, return_sum: of the training episodes that ended since the last generation.
      fitness: the mean return of a generation; of an earlier one where no episode ended.
    """

    num_episodes: jax.Array
    return_sum: jax.Array
    fitness: jax.Array

    @classmethod
    def start(cls) -> "Member":
        zero = jnp.zeros((), jnp.float32)
        return cls(num_episodes=zero, return_sum=zero, fitness=zero - jnp.inf)

    def add(self, stats: EpisodeStats) -> "Member":
        """Count the episodes of an update."""
        return replace(
            self,
            num_episodes=self.num_episodes + stats.count,
            return_sum=self.return_sum + stats.return_sum,
        )

    def evaluated(self) -> "Member":
        """Compute the fitness and begin the next generation; NaN is the lowest."""
        mean = self.return_sum / jnp.maximum(self.num_episodes, 1.0)
        fitness = jnp.where(self.num_episodes > 0, mean, self.fitness)
        fitness = jnp.where(jnp.isnan(fitness), -jnp.inf, fitness)
        zero = jnp.zeros_like(self.return_sum)
        return Member(num_episodes=zero, return_sum=zero, fitness=fitness)


def select(population: Population, fitness: jax.Array, key: jax.Array) -> jax.Array:
    """Choose whom each member copies, int32 `[P]`: itself, or a strictly better member.

    Args:
      population: how.
      fitness: float32 `[P]`; of equal members the first counts as better.
      key: draws among the best.
    """
    count, size = population.num_copied, population.size
    order = jnp.argsort(-fitness).astype(jnp.int32)
    best, worst = order[:count], order[size - count :]
    if population.selection == "rank":
        donors = best[::-1]
    else:
        donors = best[jax.random.randint(key, (count,), 0, count)]
    chosen = jnp.where(fitness[donors] > fitness[worst], donors, worst)
    return jnp.arange(size, dtype=jnp.int32).at[worst].set(chosen)


def exploit(population: Population, states: RunnerState) -> tuple[RunnerState, jax.Array]:
    """Let the worst members copy the best, and perturb the hyperparameters of the copies.

    A copy is the whole state but the random key: networks, optimizers, normalization, replay,
    environments, carry and schedules.

    Args:
      population: how.
      states: `[P, ...]`, at the end of a generation.

    Returns:
      The states, and whom each member copies, int32 `[P]`.
    """
    member = states.member.evaluated()
    # Of the first member's key, which is not copied; the number is that of the generation.
    key = jax.random.fold_in(states.key[0], _SELECTION)
    select_key, explore_key = jax.random.split(jax.random.fold_in(key, states.num_updates[0]))
    parent = select(population, member.fitness, select_key)
    after = jax.tree.map(lambda leaf: leaf[parent], replace(states, member=member))
    after = replace(after, key=states.key)
    return _perturbed(population, after, parent != jnp.arange(len(parent)), explore_key), parent


def _perturbed(
    population: Population, states: RunnerState, where: jax.Array, key: jax.Array
) -> RunnerState:
    """Multiply the perturbed hyperparameters of some members by 0.8 or 1.2, and clip them."""
    hyper, schedules = states.agent.hyper, dict(states.schedules)
    low, high = FACTORS
    changed = {}
    for perturbed, own_key in zip(
        population.perturbed, jax.random.split(key, len(population.perturbed)), strict=True
    ):
        factor = jnp.where(jax.random.bernoulli(own_key, shape=where.shape), high, low)

        def change(
            value: jax.Array, perturbed: Perturbed = perturbed, factor: jax.Array = factor
        ) -> jax.Array:
            return jnp.where(where, jnp.clip(value * factor, perturbed.low, perturbed.high), value)

        if perturbed.name in schedules:  # the whole curve; the loop then writes its value
            curve = schedules[perturbed.name]
            values = tuple(map(change, curve.values))
            schedules[perturbed.name] = Schedule(curve.kind, values, curve.counts, curve.unit)
        else:
            changed[perturbed.name] = change(getattr(hyper, perturbed.name))
    agent = replace(states.agent, hyper=replace_options(hyper, changed))
    return replace(states, agent=agent, schedules=schedules)


def end_chunk(
    population: Population,
    states: RunnerState,
    metrics: dict[str, jax.Array],
    num_updates: int | np.int32 | jax.Array,
) -> Updated:
    """Exploit if a generation ends with a chunk; chunks must end where generations do.

    Args:
      population: how.
      states: `[P, ...]`, after the chunk.
      metrics: `[P, chunk_size]` each.
      num_updates: of the chunk, at least 1.

    Returns:
      The states, and the metrics with `parent`: whom a member copied after an update; itself
      mostly.
    """
    members = jnp.arange(population.size, dtype=jnp.int32)
    is_time = states.num_updates[0] % population.exploit_every == 0
    states, parent = jax.lax.cond(
        is_time,
        lambda old_states: exploit(population, old_states),
        lambda old_states: (old_states, members),
        states,
    )
    shape = jax.tree.leaves(metrics)[0].shape
    lineage = jnp.broadcast_to(members[:, None], shape).at[:, num_updates - 1].set(parent)
    return states, {**metrics, PARENT: lineage.astype(jnp.float32)}


def _read(text: str, agent: Agent, hyper: AnyHyperparams) -> Perturbed:
    """Read one of `perturb` and check it."""
    owner = agent.name
    name, equals, limits_text = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    by_name = {field.name: field for field in option_fields(agent.Hyperparams)}
    if name in (field.name for field in option_fields(agent.Config)):
        raise TriglotError(
            f"{owner}'s {name} is fixed when the training compiles, so a population cannot perturb "
            f"it; it can perturb {', '.join(by_name)}."
        )
    if name not in by_name:
        raise unknown(f"hyperparameter of {owner} in perturb", name, by_name)
    value = getattr(hyper, name)
    limits = [field.metadata.get("below") for field in by_name.values()]
    if "below" in by_name[name].metadata or name in limits:
        raise TriglotError(
            f"{owner}'s {name} must keep its order with another hyperparameter, so a population "
            "cannot perturb it alone: leave it out."
        )
    allowed = allowed_by(by_name[name], agent.config)
    low = (
        float(np.nextafter(np.float32(allowed.low), np.float32(1)))
        if allowed.above_low
        else (allowed.low)
    )
    if equals:
        if isinstance(value, Schedule):
            raise TriglotError(
                f"perturb {name} has a range, and {name} is a schedule, {value}: set {name} to a "
                "number, or leave the range out, so that the schedule's values are multiplied."
            )
        return _ranged(name, limits_text.strip(), allowed)
    if isinstance(value, Schedule) and value.function is None:
        return Perturbed(name, low, allowed.high)
    if not isinstance(value, jax.Array | np.ndarray) and (not is_number(value) or value == 0):
        raise TriglotError(
            f"perturb multiplies {name}, which is {value}: give it a number other than 0, or a "
            f"range, {name}=log:LOW..HIGH."
        )
    return Perturbed(name, low, allowed.high)


def _ranged(name: str, text: str, allowed: Range) -> Perturbed:
    form = re.fullmatch(r"(log:)?(.+?)\.\.(.+)", text)
    try:
        low, high = (float(form[2]), float(form[3])) if form else (math.nan, math.nan)
    except ValueError:
        low = high = math.nan
    log = bool(form and form[1])
    if not -math.inf < low < high < math.inf or (log and low <= 0):
        raise TriglotError(
            f"perturb {shown(f'{name}={text}')} must have the form {FORM}, with finite bounds, the "
            "lower one first, and above 0 after log."
        )
    for bound in (low, high):
        if to_float32(bound) not in allowed:
            raise TriglotError(f"perturb {name}: {name} must be {allowed}, got {bound:g}.")
    return Perturbed(name, low, high, "log" if log else "uniform")
