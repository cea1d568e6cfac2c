"""A replay buffer of the last steps of `N` environments, sampled uniformly or by priority.

The slots form a ring, in which the steps of one environment are `N` slots apart. Adding a rollout
is then one contiguous write, and a sample of `n` successive steps reads `n` rewards and flags but
only two observations: the first, and the true successor of the last step.
"""

from dataclasses import dataclass, fields, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .. import specs
from ..agent import AgentConfig, Trajectory
from ..errors import TriglotError
from ..hyper import MAX_COUNT, Number, check_count
from ..specs import Spec
from ..types import PyTree, pytree_dataclass
from .cuts import truncated_or_cut
from .priorities import Priorities, Starts, set_priorities


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(AgentConfig):
    """Static configuration of an agent that learns from a replay buffer.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      num_gradient_steps: gradient steps in one update.
      batch_size: samples in one gradient step, `B`.
      buffer_size: environment steps kept for replay, rounded up to whole rollouts.
      learning_starts: environment steps before the first gradient step.
    """

    rollout_length: int = 1
    num_gradient_steps: int = 1
    batch_size: int = 128
    buffer_size: int = 10_000
    learning_starts: int = 10_000

    # Without annotations, so that only `PrioritizedReplayConfig` makes them fields.
    n_step = 1
    prioritized = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if None in (self.buffer_size, self.learning_starts):  # checked when the agent is made
            return
        owner = type(self).__name__.removesuffix("Config")
        check_count(f"{owner}'s buffer_size, rounded up to whole rollouts,", self.capacity)
        self._check_learning_starts(owner)

    def _check_learning_starts(self, owner: str) -> None:
        least = self.batch_size + (self.n_step - 1) * self.num_envs
        if not least <= self.learning_starts <= self.capacity:
            raise TriglotError(
                f"{owner} needs batch_size + (n_step - 1) * num_envs <= "
                "learning_starts <= buffer_size, so that the replay holds a batch when learning "
                f"starts; got {least:,}, {self.learning_starts:,} and "
                f"{self.buffer_size:,}."
            )

    @property
    def capacity(self) -> int:
        """`buffer_size`, rounded up to whole rollouts."""
        return -(-self.buffer_size // self.steps_per_update) * self.steps_per_update


@dataclass(frozen=True, kw_only=True)
class PrioritizedReplayConfig(ReplayConfig):
    """Static configuration of an agent that also supports n-step samples and priorities.

    Attributes:
      n_step: steps in one sample, whose rewards are summed.
      prioritized: sample by the size of the last error instead of uniformly.
    """

    n_step: int = 1
    prioritized: bool = False


@pytree_dataclass
class Step:
    """Steps as a replay stores them; `[T, N, ...]` where a rollout is added.

    Attributes:
      obs: any pytree.
      action: `[...]`, of any dtype.
      reward: float32.
      terminated, truncated: bool.
      next_obs, next_action_mask: the true successor's, from before any reset; the mask is None
        where actions are continuous.
      action_mask: the observation's own; None unless the replay has `own_masks`.
      first: bool, an episode starts here; it is read where a rollout is added, and not stored. None
        where no episode was cut from outside (`core.rl.cuts`).
    """

    obs: PyTree
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    next_obs: PyTree
    next_action_mask: jax.Array | None
    action_mask: jax.Array | None = None
    first: jax.Array | None = None


@pytree_dataclass
class ReplayState:
    """What a replay holds.

    Attributes:
      steps: `[C, ...]`, one step per slot.
      position: int32 `[]`, the slot that is written next.
      num_added: int32 `[]`, environment steps added so far; stops counting at 2^31 - 1.
      priorities: None where sampling is uniform.
    """

    steps: Step
    position: jax.Array
    num_added: jax.Array
    priorities: Priorities | None

    @property
    def size(self) -> jax.Array:
        """Count the slots filled, int32 `[]`."""
        return jnp.minimum(self.num_added, self.steps.reward.shape[-1])


@pytree_dataclass
class Sample:
    """Transitions of up to `n_step` steps; `[B, ...]` each.

    Attributes:
      obs, action: at the first step.
      reward: float32, the discounted sum up to the `n_step`-th step or the episode's end.
      discount: float32, of the value of `next_obs`; 0 where the episode terminated.
      next_obs, next_action_mask: the true successor of the last step in the sum; the mask is None
        where all actions are allowed.
      slot: int32, where the sample starts.
      probability: float32, with which it was drawn.
      action_mask: of `obs`; None unless the replay has `own_masks`.
    """

    obs: PyTree
    action: jax.Array
    reward: jax.Array
    discount: jax.Array
    next_obs: PyTree
    next_action_mask: jax.Array | None
    slot: jax.Array
    probability: jax.Array
    action_mask: jax.Array | None = None


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A replay buffer's static configuration; pure functions over `ReplayState`.

    Attributes:
      obs_spec: of the observations; whole numbers are stored in the dtype of fewest bytes.
      action_spec: of the actions.
      capacity: `C`, a multiple of the steps `T * N` of the rollouts that are added.
      num_envs: `N`.
      n_step: most steps in one sample.
      prioritized: sample in proportion to the weights that `update_priorities` gives.
      own_masks: keep the action mask of each observation too, for discrete actions; otherwise only
        its successor's.
    """

    obs_spec: Spec
    action_spec: Spec
    capacity: int
    num_envs: int
    n_step: int = 1
    prioritized: bool = False
    own_masks: bool = False

    @classmethod
    def of(cls, config: ReplayConfig, obs_spec: Spec, action_spec: Spec) -> "Replay":
        """Make the replay that an agent's configuration describes, of such steps."""
        shared = ("capacity", "num_envs", "n_step", "prioritized")
        settings = {name: getattr(config, name) for name in shared}
        return cls(obs_spec=obs_spec, action_spec=action_spec, **settings)

    @property
    def starts(self) -> Starts:
        """The slots at which a sample may start: `n_step` steps follow them."""
        return Starts(self.capacity, (self.n_step - 1) * self.num_envs, self.prioritized)

    def init(self) -> ReplayState:
        """Make an empty replay."""
        num_slots, mask_size = self.capacity, specs.mask_size(self.action_spec)

        def no_mask(kept: bool = True) -> jax.Array | None:
            if mask_size is None or not kept:
                return None
            return jnp.ones((num_slots, mask_size), bool)

        def no_obs() -> PyTree:  # two buffers, since donated ones must not alias
            return specs.to_stored(self.obs_spec, specs.zeros(self.obs_spec, num_slots))

        return ReplayState(
            steps=Step(
                obs=no_obs(),
                action=specs.zeros(self.action_spec, num_slots),
                reward=jnp.zeros((num_slots,), jnp.float32),
                terminated=jnp.zeros((num_slots,), bool),
                truncated=jnp.zeros((num_slots,), bool),
                next_obs=no_obs(),
                next_action_mask=no_mask(),
                action_mask=no_mask(self.own_masks),
            ),
            position=jnp.zeros((), jnp.int32),
            num_added=jnp.zeros((), jnp.int32),
            priorities=self.starts.init(),
        )

    def add_trajectory(
        self, state: ReplayState, trajectory: Trajectory, action: jax.Array | None = None
    ) -> ReplayState:
        """Write a rollout over the oldest slots; `action` `[T, N, ...]` replaces its actions.

        Where it starts an episode and the newest step has no end, that step becomes truncated, if
        samples have several steps.
        """

        def kept(mask: jax.Array | None, stored: jax.Array | None) -> jax.Array | None:
            if stored is None:
                return None
            shape = (*trajectory.reward.shape, stored.shape[-1])
            return jnp.ones(shape, bool) if mask is None else mask

        steps = Step(**{field.name: getattr(trajectory, field.name) for field in fields(Step)})
        steps = replace(
            steps,
            action=steps.action if action is None else action,
            next_action_mask=kept(steps.next_action_mask, state.steps.next_action_mask),
            action_mask=kept(steps.action_mask, state.steps.action_mask),
        )
        return self.add(state, steps)

    def add(self, state: ReplayState, steps: Step) -> ReplayState:
        """Write a rollout `[T, N, ...]` over the oldest slots; see `add_trajectory`."""
        block = steps.reward.size
        if self.capacity % block:
            raise TriglotError(
                f"a replay of {self.capacity} slots takes rollouts that divide it, got one of "
                f"{block} steps."
            )

        first = steps.first
        steps = replace(
            steps,
            obs=specs.to_stored(self.obs_spec, steps.obs),
            next_obs=specs.to_stored(self.obs_spec, steps.next_obs),
            first=None,
        )
        slots = write(state.steps, steps, state.position)
        if first is not None and self.n_step > 1:  # a sample of one step ends with it anyway
            slots = cut_before(slots, first, state.position, state.num_added)
        return ReplayState(
            steps=slots,
            position=(state.position + block) % self.capacity,
            num_added=jnp.minimum(state.num_added, MAX_COUNT - block) + block,
            priorities=self.starts.make_room(state.priorities, state.position, state.size, block),
        )

    def num_starts(self, state: ReplayState) -> jax.Array:
        """Count the slots at which a sample may start, int32 `[]`: `n_step` steps follow them."""
        return self.starts.count(state.size)

    def sample(
        self, state: ReplayState, key: jax.Array, batch_size: int, discount: Number
    ) -> Sample:
        """Draw `batch_size` samples, with replacement.

        Args:
          state: with at least one slot to start from.
          key: a typed key.
          batch_size: `B`.
          discount: of one step, float `[]` within [0, 1].

        Returns:
          The samples; by priority they are stratified, see `Starts.draw`.
        """
        where = state.priorities, state.position, state.size
        slot, probability = self.starts.draw(*where, key, batch_size)
        return self._read(state.steps, slot, probability, discount)

    def update_priorities(
        self, state: ReplayState, slot: jax.Array, weight: jax.Array
    ) -> ReplayState:
        """Set float weights `[B]` of sampled slots `[B]`."""
        if state.priorities is None:
            return state
        return replace(state, priorities=set_priorities(state.priorities, slot, weight))

    def _read(
        self, steps: Step, slot: jax.Array, probability: jax.Array, discount: Number
    ) -> Sample:
        offsets = jnp.arange(self.n_step, dtype=jnp.int32)[:, None] * self.num_envs
        slots = (slot[None] + offsets) % self.capacity
        reward, factor, last = n_step_return(
            steps.reward[slots], steps.terminated[slots], steps.truncated[slots], discount
        )
        end = (slot + last * self.num_envs) % self.capacity
        return Sample(
            obs=self._read_obs(steps.obs, slot),
            action=steps.action[slot],
            reward=reward,
            discount=factor,
            next_obs=self._read_obs(steps.next_obs, end),
            next_action_mask=jax.tree.map(lambda mask: mask[end], steps.next_action_mask),
            slot=slot,
            probability=probability,
            action_mask=jax.tree.map(lambda mask: mask[slot], steps.action_mask),
        )

    def _read_obs(self, stored: PyTree, slot: jax.Array) -> PyTree:
        return specs.from_stored(self.obs_spec, jax.tree.map(lambda leaf: leaf[slot], stored))


def write(slots: PyTree, new: PyTree, position: jax.Array) -> PyTree:
    """Write `[T, N, ...]` into slots `[C, ...]`, contiguously from `position` on."""

    def write_leaf(old: jax.Array, leaf: jax.Array) -> jax.Array:
        rows = leaf.reshape((-1, *old.shape[1:]))
        return jax.lax.dynamic_update_slice_in_dim(old, rows, position, axis=0)

    return jax.tree.map(write_leaf, slots, new)


def cut_before(
    slots: PyTree, first: Bool[Array, "T N"], position: jax.Array, num_added: jax.Array
) -> PyTree:
    """Truncate the steps before a rollout that have no end, where it starts another episode.

    Args:
      slots: `[C, ...]`, with `terminated` and `truncated`, in which the rollout is written already:
        XLA copies whole buffers that are read before they are written.
      first: bool `[T, N]`, of the rollout.
      position: int32 `[]`, the slot where it begins.
      num_added: int32 `[]`, steps added before it; 0 changes nothing.
    """
    (_, num_envs), capacity = first.shape, slots.truncated.shape[0]
    if first.size == capacity:  # the steps before it are overwritten
        return slots
    before = (position - num_envs) % capacity

    def read(flags: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(flags, before, num_envs)

    next_first = first[0] & (num_added > 0)
    truncated = truncated_or_cut(read(slots.terminated), read(slots.truncated), next_first)
    return replace(slots, truncated=write(slots.truncated, truncated, before))


def n_step_return(
    reward: Float[Array, "n B"],
    terminated: Bool[Array, "n B"],
    truncated: Bool[Array, "n B"],
    discount: Number,
) -> tuple[Float[Array, " B"], Float[Array, " B"], Int[Array, " B"]]:
    """Sum discounted rewards up to the `n`-th step or the episode's end, whichever comes first.

    Args:
      reward: float32 `[n, B]`.
      terminated: bool `[n, B]`, no bootstrap after termination.
      truncated: bool `[n, B]`, where the sum stops and the true successor's value is added.
      discount: of one step, float `[]`.

    Returns:
      The sum, float32 `[B]`; the discount of the value after its last step, float32 `[B]`; and the
      index of that step, int32 `[B]` within [0, n).

    Source: Sutton and Barto 2018, equation 7.1, http://incompleteideas.net/book/the-book-2nd.html;
    `rlax.n_step_bootstrapped_returns` gives the same target from the values of all `n` successors,
    where this needs one.
    """
    total, factor = reward[0], jnp.full_like(reward[0], discount)
    last = jnp.zeros(reward.shape[1:], jnp.int32)
    ended, dead = terminated[0] | truncated[0], terminated[0]
    for index in range(1, reward.shape[0]):
        total = jnp.where(ended, total, total + factor * reward[index])
        factor = jnp.where(ended, factor, factor * discount)
        last = jnp.where(ended, last, index)
        dead = dead | (~ended & terminated[index])
        ended = ended | terminated[index] | truncated[index]
    return total, jnp.where(dead, 0.0, factor), last
