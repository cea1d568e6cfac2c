"""A replay buffer of sequences of steps, for recurrent networks and for models of several steps.

The steps of `N` environments form the ring of `core.rl.replay`: those of one environment are `N`
slots apart, so that a rollout is one contiguous write. A sample is a `Trajectory` of `L` steps,
which may span several episodes: `first`, `terminated` and `truncated` say where they start and end,
and each step has its true successor. All observations are therefore stored twice, since a time
limit may end an episode at any step, and how often is unknown when the buffer is made.

Sequences start every `period` steps of an environment. A recurrent network's carry is stored for
those steps alone, `capacity / period` carries: 4 KiB each for an LSTM of 512 units, so that a
sequence every 40 steps adds 102 bytes to each step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .. import specs
from ..agent import Trajectory
from ..errors import TriglotError
from ..hyper import MAX_COUNT, Number, check_divides
from ..specs import Discrete, Spec
from ..types import PyTree, pytree_dataclass
from .priorities import Priorities, Starts, set_priorities
from .replay import ReplayConfig, cut_before, write


@dataclass(frozen=True, kw_only=True)
class SequenceReplayConfig(ReplayConfig):
    """Static configuration of an agent that learns from sequences of steps.

    A subclass gives `sequence_length`, and a `sequence_period` other than 1, by its fields.

    Attributes:
      batch_size: sequences in one gradient step, `B`.
    """

    batch_size: int = 32

    # Without annotations, so that these are not fields.
    sequence_length = 1
    sequence_period = 1

    def _check_learning_starts(self, owner: str) -> None:
        period = self.sequence_period
        check_divides(owner, "sequence_period", period, self.rollout_length, "rollout_length")
        least = self.sequence_length * self.num_envs
        if not least <= self.learning_starts <= self.capacity:
            raise TriglotError(
                f"{owner} needs sequence length * num_envs <= learning_starts <= buffer_size, so "
                f"that the replay holds a sequence when learning starts; got {least:,}, "
                f"{self.learning_starts:,} and {self.buffer_size:,}."
            )


@pytree_dataclass
class SequenceReplayState:
    """What a replay of sequences holds.

    Attributes:
      steps: `[C, ...]`, one step per slot; its `carry` `[C / period, ...]` is the one before the
        first step of each sequence, `()` without one.
      position: int32 `[]`, the slot that is written next.
      num_added: int32 `[]`, environment steps added so far; stops counting at 2^31 - 1.
      priorities: of the sequences; None where sampling is uniform.
    """

    steps: Trajectory
    position: jax.Array
    num_added: jax.Array
    priorities: Priorities | None

    @property
    def size(self) -> jax.Array:
        """Count the slots filled, int32 `[]`."""
        return jnp.minimum(self.num_added, self.steps.reward.shape[-1])


@pytree_dataclass
class Sequences:
    """Sampled sequences of one length `L`.

    Attributes:
      steps: `[L, B, ...]`, with the carry `[B, ...]` stored for the first step.
      slot: int32 `[B]`, where each starts, for `update_priorities`.
      probability: float32 `[B]`, with which each was drawn.
    """

    steps: Trajectory
    slot: jax.Array
    probability: jax.Array


@dataclass(frozen=True, kw_only=True)
class SequenceReplay:
    """The replay's static configuration; pure functions over `SequenceReplayState`.

    Attributes:
      obs_spec: of the observations; whole numbers are stored in the dtype of fewest bytes.
      action_spec: of the actions.
      capacity: `C`, a multiple of the steps `T * N` of the rollouts that are added.
      num_envs: `N`.
      sequence_length: `L`, steps in one sample.
      period: steps of an environment from the start of a sequence to that of the next; divides `T`.
      prioritized: sample in proportion to the weights that `update_priorities` gives.
    """

    obs_spec: Spec
    action_spec: Spec
    capacity: int
    num_envs: int
    sequence_length: int
    period: int = 1
    prioritized: bool = False

    @classmethod
    def of(
        cls, config: SequenceReplayConfig, obs_spec: Spec, action_spec: Spec
    ) -> "SequenceReplay":
        """Make the replay that an agent's configuration describes, of such steps."""
        return cls(
            obs_spec=obs_spec,
            action_spec=action_spec,
            capacity=config.capacity,
            num_envs=config.num_envs,
            sequence_length=config.sequence_length,
            period=config.sequence_period,
            prioritized=config.prioritized,
        )

    @property
    def starts(self) -> Starts:
        """The starts of sequences, `C / period` of them."""
        waiting = (-(-self.sequence_length // self.period) - 1) * self.num_envs
        return Starts(self.capacity // self.period, waiting, self.prioritized)

    def init(
        self, carry: PyTree = (), extras: Mapping[str, PyTree] | None = None
    ) -> SequenceReplayState:
        """Make an empty replay.

        Args:
          carry: of a recurrent network, `[N, ...]`; shapes and dtypes alone are used.
          extras: the policy's extras to store, `[N, ...]` each, likewise; None stores none.
        """

        def zeros(example: PyTree, num_slots: int) -> PyTree:
            return jax.tree.map(
                lambda leaf: jnp.zeros((num_slots, *leaf.shape[1:]), leaf.dtype), example
            )

        def no_obs() -> PyTree:  # two buffers, since donated ones must not alias
            return specs.to_stored(self.obs_spec, specs.zeros(self.obs_spec, self.capacity))

        def no_mask() -> jax.Array | None:
            if not isinstance(self.action_spec, Discrete):
                return None
            return jnp.ones((self.capacity, self.action_spec.num_values), bool)

        def no_flag() -> jax.Array:
            return jnp.zeros((self.capacity,), bool)

        steps = Trajectory(
            obs=no_obs(),
            first=no_flag(),
            action_mask=no_mask(),
            action=specs.zeros(self.action_spec, self.capacity),
            reward=jnp.zeros((self.capacity,), jnp.float32),
            terminated=no_flag(),
            truncated=no_flag(),
            next_obs=no_obs(),
            next_action_mask=no_mask(),
            extras=zeros(dict(extras or {}), self.capacity),
            carry=zeros(carry, self.starts.capacity),
        )
        return SequenceReplayState(
            steps=steps,
            position=jnp.zeros((), jnp.int32),
            num_added=jnp.zeros((), jnp.int32),
            priorities=self.starts.init(),
        )

    def add(
        self, state: SequenceReplayState, trajectory: Trajectory, carries: PyTree | None = None
    ) -> SequenceReplayState:
        """Write a rollout `[T, N, ...]` over the oldest slots.

        Where it starts an episode and the newest step has no end, that step becomes truncated.

        Args:
          state: of this replay.
          trajectory: its extras may be more than those stored.
          carries: `[T / period, N, ...]`, before each step at which a sequence starts; None for the
            trajectory's carry, where `period` is `T` or there is no carry.

        Raises:
          TriglotError: if the sizes do not fit.
        """
        length, num_envs = trajectory.reward.shape
        block = length * num_envs
        if self.capacity % block or length % self.period or num_envs != self.num_envs:
            raise TriglotError(
                f"a replay of {self.capacity} slots and {self.num_envs} environments with a "
                f"sequence every {self.period} steps takes rollouts whose steps divide the slots "
                f"and are divided by {self.period}, got one of {length} steps of {num_envs}."
            )
        stored = state.steps
        if carries is None:
            carries = trajectory.carry
            if jax.tree.leaves(carries) and length != self.period:
                raise TriglotError(
                    f"sequences start every {self.period} of {length} steps: give the carries "
                    "before each of these, see triglot.nn.carries."
                )

        def masked(mask: jax.Array | None, slots: jax.Array | None) -> jax.Array | None:
            if mask is None and slots is not None:
                return jnp.ones((length, num_envs, *slots.shape[1:]), bool)
            return mask

        kept = {name: trajectory.extras[name] for name in stored.extras}
        steps = replace(
            trajectory,
            obs=specs.to_stored(self.obs_spec, trajectory.obs),
            next_obs=specs.to_stored(self.obs_spec, trajectory.next_obs),
            action_mask=masked(trajectory.action_mask, stored.action_mask),
            next_action_mask=masked(trajectory.next_action_mask, stored.next_action_mask),
            extras=kept,
            carry=(),
        )
        start = state.position // self.period
        written = write(replace(stored, carry=()), steps, state.position)
        written = cut_before(written, trajectory.first, state.position, state.num_added)
        priorities = self.starts.make_room(
            state.priorities, start, state.size // self.period, block // self.period
        )
        return SequenceReplayState(
            steps=replace(written, carry=write(stored.carry, carries, start)),
            position=(state.position + block) % self.capacity,
            num_added=jnp.minimum(state.num_added, MAX_COUNT - block) + block,
            priorities=priorities,
        )

    def num_starts(self, state: SequenceReplayState) -> jax.Array:
        """Count the sequences that can be sampled, int32 `[]`."""
        return self.starts.count(state.size // self.period)

    def sample(self, state: SequenceReplayState, key: jax.Array, batch_size: int) -> Sequences:
        """Draw `batch_size` sequences, with replacement, of a state with at least one."""
        where = state.position // self.period, state.size // self.period
        slot, probability = self.starts.draw(state.priorities, *where, key, batch_size)
        return Sequences(steps=self.read(state, slot), slot=slot, probability=probability)

    def read(self, state: SequenceReplayState, slot: jax.Array) -> Trajectory:
        """Read the sequences `[L, B, ...]` that start at `slot` `[B]`, counted among the starts."""
        block, env = slot // self.num_envs, slot % self.num_envs
        first = block * self.period * self.num_envs + env
        offsets = jnp.arange(self.sequence_length, dtype=jnp.int32) * self.num_envs
        slots = (first[None] + offsets[:, None]) % self.capacity
        steps = jax.tree.map(lambda leaf: leaf[slots], replace(state.steps, carry=()))
        return replace(
            steps,
            obs=specs.from_stored(self.obs_spec, steps.obs),
            next_obs=specs.from_stored(self.obs_spec, steps.next_obs),
            carry=jax.tree.map(lambda leaf: leaf[slot], state.steps.carry),
        )

    def update_priorities(
        self, state: SequenceReplayState, slot: jax.Array, weight: jax.Array
    ) -> SequenceReplayState:
        """Set float weights `[B]` of sampled sequences `[B]`."""
        if state.priorities is None:
            return state
        return replace(state, priorities=set_priorities(state.priorities, slot, weight))


def sequence_priority(error: Float[Array, "L B"], eta: Number) -> Float[Array, " B"]:
    """Mix the largest and the average error of each sequence.

    p = eta * max_t |error_t| + (1 - eta) * mean_t |error_t|

    Args:
      error: float `[L, B]`, temporal-difference errors.
      eta: float `[]` within [0, 1].

    Returns:
      float `[B]`.

    Source: Kapturowski et al. 2019, section 2.3, https://openreview.net/forum?id=r1lyTjAqYX.
    """
    size = jnp.abs(error)
    return eta * size.max(axis=0) + (1.0 - eta) * size.mean(axis=0)
