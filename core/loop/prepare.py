"""Compile the programs of a training side by side: XLA compiles without holding Python's lock."""

from concurrent.futures import Executor
from typing import Any, TypeGuard

import jax

from ..types import PyTree
from .interface import OnStage, Program, TrainerLike, ignore_stage
from .state import RunnerState
from .trainer import Trainer, init_seeds, play_seeds


def initialize_and_compile(
    trainer: TrainerLike,
    program: Program,
    keys: jax.Array,
    hyper: PyTree,
    background: Executor,
    on_stage: OnStage = ignore_stage,
) -> RunnerState:
    """Initialize every seed while the training compiles.

    Host environments, and several processes, need the states before they compile.

    Args:
      trainer: of either kind.
      program: of the trainer; it is compiled.
      keys, hyper: as for `init_seeds`.
      background: runs the initialization on another thread.
      on_stage: see `Program.compile`; called with `init` as well.

    Returns:
      The initial states, `[S, ...]`.
    """
    if not _compiles_from_shapes(trainer):
        state = jax.block_until_ready(init_seeds(trainer, keys, hyper))
        on_stage("init")
        program.compile(state, on_stage)
        return state
    # Traced here: on two threads, both would wait for Python's lock in turns.
    lowered = init_seeds.lower(trainer, keys, hyper)
    pending = background.submit(lambda: jax.block_until_ready(lowered.compile()(keys, hyper)))
    on_stage("init")
    program.compile(init_seeds.eval_shape(trainer, keys, hyper), on_stage)
    return pending.result()


def compile_evaluation(
    trainer: TrainerLike, runner_states: RunnerState, keys: jax.Array, **options: Any
) -> None:
    """Compile `trainer.evaluate_seeds` before it is called, if it is one program.

    Args:
      trainer: of either kind.
      runner_states: `[S, ...]`; they and `keys` are read for their shapes only.
      keys, options: as for `evaluate_seeds`.
    """
    if not _compiles_from_shapes(trainer):
        return
    given = (runner_states.agent, keys)
    if trainer.seed_sharding is not None:
        given = trainer.seed_sharding.placed_shapes(given)
    play_seeds.lower(trainer, *given, **options).compile()


def _compiles_from_shapes(trainer: TrainerLike) -> TypeGuard[Trainer]:
    return isinstance(trainer, Trainer) and jax.process_count() == 1
