"""A trained policy as a function of observations."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer

from ..core.agent import PolicyInput
from ..core.errors import TriglotError, prefixed, shown
from ..core.host_environment import to_dtype
from ..core.hyper import check_count
from ..core.specs import Box, Dict, Discrete, MultiDiscrete, Spec
from ..core.types import Carry, Obs, PyTree
from .acting import Acting
from .load import Run, run_of
from .population import chosen_seed_index


class Policy:
    """The policy of one seed: `policy(obs) -> action`; from `load_policy` or `TrainResult.policy`.

    Everything that the agent does to observations and actions is inside: normalization by the
    statistics of the training, and scaling to the action's bounds.

    A recurrent policy keeps its carry from call to call. Call `reset()` where an episode starts.

    Attributes:
      obs_spec: one observation.
      action_spec: one action.
      masked: whether the environment gives masks of allowed actions, which a call then needs.
      recurrent: whether the policy keeps a carry.
      num_updates: of the training, at the checkpoint.
    """

    def __init__(self, acting: Acting, num_updates: int, *, seed: int = 0) -> None:
        self.obs_spec = acting.agent.obs_spec
        self.action_spec = acting.agent.action_spec
        self.masked = acting.num_actions is not None
        self.recurrent = acting.recurrent
        self.num_updates = num_updates
        self._acting = acting
        self._num_calls = 0
        self._carry: Carry = None
        self._first: np.ndarray | None = None
        self._starts: dict[int, tuple[Carry, np.ndarray]] = {}  # by the number of observations

        # What a call converts costs more than the network: a key, an axis and an index are inside.
        def act(
            single: bool,
            arrays: tuple[jax.Array, ...],
            carry: Carry,
            obs: Obs,
            first: jax.Array,
            mask: jax.Array | None,
            number: jax.Array,
        ) -> tuple[jax.Array, Carry]:
            key = jax.random.key(seed)
            key = jax.random.fold_in(key, number) if acting.explore else key
            if single:
                obs, mask = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (obs, mask))
            inputs = PolicyInput(obs=obs, first=first, action_mask=mask)
            action, carry = acting.act(arrays, carry, inputs, key)
            return jax.tree.map(lambda leaf: leaf[0], action) if single else action, carry

        self._act = jax.jit(act, static_argnums=0)

    def __call__(self, obs: Obs, action_mask: npt.ArrayLike | None = None) -> PyTree:
        """Choose an action for one observation, or one for each of a batch.

        Args:
          obs: one observation of `obs_spec`, or a batch `[N, ...]`; NumPy or JAX arrays, and
            dictionaries of them for a `Dict`.
          action_mask: bool `[num_actions]`, or `[N, num_actions]`, True where an action is allowed;
            for environments that give masks.

        Returns:
          The action, or `[N, ...]`: a JAX array for JAX observations, else a NumPy array.

        Raises:
          TriglotError: if the shape or the dtype of the observation does not fit, a mask is missing
            or of another shape, or a recurrent policy gets another number of observations than
            since its last `reset`.
        """
        leaves = [obs] if isinstance(obs, np.ndarray) else jax.tree.leaves(obs)
        as_jax = bool(leaves) and all(isinstance(leaf, jax.Array) for leaf in leaves)
        batch = _batch(self.obs_spec, obs)
        size = 1 if batch is None else batch
        obs = _converted(self.obs_spec, obs)
        mask = self._mask(action_mask, batch)
        carry, first = self._before(size)
        number = np.uint32(self._num_calls)
        if self._acting.explore:
            self._num_calls += 1
        arrays = self._acting.arrays
        action, carry = self._act(batch is None, arrays, carry, obs, first, mask, number)
        if self.recurrent:
            self._carry, self._first = carry, np.zeros(size, bool)
        if as_jax:
            return action
        if isinstance(action, jax.Array):
            return np.asarray(action)
        return jax.tree.map(np.asarray, action)

    def reset(self, where: npt.ArrayLike | None = None) -> None:
        """Start new episodes, which matters to a recurrent policy only.

        Args:
          where: bool `[N]`, the environments of the batch whose episodes start; None: all, and the
            next call may have another number of observations.

        Raises:
          TriglotError: if `where` is not one truth value for each observation of the last batch.
        """
        if where is None:
            self._carry = self._first = None
        elif self._first is not None:
            starts = np.asarray(where)
            if starts.dtype != bool or starts.shape != self._first.shape:
                raise TriglotError(
                    f"reset takes bool {list(self._first.shape)}, True where an episode of the "
                    f"last batch starts; got {starts.dtype} {list(starts.shape)}."
                )
            self._first = self._first | starts

    def _before(self, size: int) -> tuple[Carry, np.ndarray]:
        """Return the carry, and where episodes start."""
        if self._first is None:
            if size not in self._starts:
                shapes = self._acting.carry(size)
                carry = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
                self._starts[size] = carry, np.ones(size, bool)
            return self._starts[size]
        if len(self._first) != size:
            raise TriglotError(
                f"the recurrent policy has the carry of {len(self._first)} observations and got "
                f"{size}: call reset() to start new episodes."
            )
        return self._carry, self._first

    def _mask(self, mask: npt.ArrayLike | None, batch: int | None) -> jax.Array | np.ndarray | None:
        if not self.masked:
            if mask is not None:
                raise TriglotError(
                    "this policy was trained without action masks, and got one: leave it out."
                )
            return None
        shape = (self._acting.num_actions,) if batch is None else (batch, self._acting.num_actions)
        array = mask if isinstance(mask, jax.Array) else np.asarray(mask)
        if array.shape != shape or array.dtype != bool:
            got = "none" if mask is None else f"{array.dtype} {list(array.shape)}"
            raise TriglotError(
                f"give action_mask, bool {list(shape)}, True where the environment allows an "
                f"action; got {got}."
            )
        return array


def load_policy(
    folder: str | Path,
    seed_index: int | None = None,
    sampled: bool = False,
    *,
    seed: int = 0,
    previous: bool = False,
    trust: bool = False,
) -> Policy:
    """Load the policy of one seed from a folder of `triglot train`.

    Args:
      folder: the run directory.
      seed_index: which of the run's seeds acts, counted from 0; None for the first, and for the
        best member of a population.
      sampled: sample actions as in training instead of acting greedily.
      seed: random seed of the samples.
      previous: if the last checkpoint is damaged, use the one before it.
      trust: import the custom code that the run names, although this user did not begin it here.

    Raises:
      TriglotError: if the run has no such seed, and as `load_run`.
    """
    run = run_of(folder, previous=previous, trust=trust)
    num_seeds = jax.tree.leaves(run.agent_states)[0].shape[0]
    index = chosen_seed_index(Path(folder), seed_index, num_seeds)
    return policy_of(run, index, sampled=sampled, seed=seed)


def policy_of(run: Run, seed_index: int, *, sampled: bool = False, seed: int = 0) -> Policy:
    """Build the policy of one seed; see `load_policy`."""
    check_count("seed", seed, 0, 2**32 - 1)
    return Policy(Acting.of(run, seed_index, explore=sampled), run.num_updates, seed=seed)


def _batch(spec: Spec, obs: Obs) -> int | None:
    """Return the size of a batch of observations; None for a single one.

    Raises:
      TriglotError: if the structure or a shape does not fit.
    """
    if isinstance(spec, Dict):
        names = [name for name, _ in spec.items]
        if not isinstance(obs, dict) or sorted(obs) != names:
            description = sorted(map(str, obs)) if isinstance(obs, dict) else shown(obs)
            raise TriglotError(f"the policy reads a dictionary with {names}, got {description}.")
        sizes = {_batch(child, obs[name]) for name, child in spec.items}
        if len(sizes) > 1:
            raise TriglotError(f"the parts of the observation are batches of {sizes}.")
        return sizes.pop()
    shape = np.shape(obs)
    if shape == spec.shape:
        return None
    if shape[1:] == spec.shape and len(shape) == len(spec.shape) + 1 and shape[0] > 0:
        return shape[0]
    batch = ["N", *spec.shape]
    raise TriglotError(
        f"the policy reads one observation {list(spec.shape)} or a batch "
        f"[{', '.join(map(str, batch))}] of {spec.dtype}; got the shape {list(shape)}."
    )


def _converted(spec: Spec, obs: Obs) -> Obs:
    """Convert observations, one or `[N, ...]`, to their dtype.

    Raises:
      TriglotError: if that would lose more than precision, or an integer is out of range.
    """
    if isinstance(spec, Dict):
        return {name: _converted(child, obs[name]) for name, child in spec.items}
    array = obs if isinstance(obs, jax.Array) else np.asarray(obs)
    # A Python integer is int64 although its value may fit.
    exact = np.issubdtype(array.dtype, np.integer) and np.issubdtype(spec.dtype, np.integer)
    if not exact and array.dtype == spec.dtype:
        return array
    if not exact and not np.can_cast(array.dtype, spec.dtype, "same_kind"):
        raise TriglotError(f"the policy reads {spec.dtype} observations, got {array.dtype}.")
    if exact and not isinstance(array, Tracer):
        _check_range(spec, np.asarray(array))
    if isinstance(array, np.ndarray):
        with prefixed("the policy cannot read this observation: "):
            array = to_dtype(array, spec.dtype)
    return array.astype(spec.dtype)


def _check_range(spec: Box | Discrete | MultiDiscrete, array: np.ndarray) -> None:
    low, high = spec.bounds()
    if not np.all((array >= low) & (array <= high)):
        raise TriglotError(
            f"the policy reads integers from {np.min(low)} to {np.max(high)}; got "
            f"{array.min()} to {array.max()}."
        )
