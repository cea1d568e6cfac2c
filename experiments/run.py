"""`triglot train`: one training, watched, and what it leaves behind."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np
from tqdm import tqdm

from ..core import checkpoint
from ..core.evaluate import Episodes, evaluate
from ..core.train import RunnerState, init_seeds, train_seeds
from . import plots
from .interrupt import Interrupt
from .journal import Journal
from .plan import Plan, prepare
from .summary import Stopwatch, in_words, summary

if TYPE_CHECKING:
    from .options import TrainOptions

INTERRUPTED = 130  # what a shell calls an end by Ctrl-C
CHUNK_SECONDS = 1.0  # between looks at the clock, and for Ctrl-C

Program: TypeAlias = Callable[[RunnerState, np.int32], tuple[RunnerState, dict[str, jax.Array]]]


def train(options: "TrainOptions", *, started: float, arguments: Sequence[str]) -> int:
    """Run `triglot train`.

    Args:
      options: what the person chose.
      started: when the program started, by `time.perf_counter`.
      arguments: the command line, to be written down.

    Returns:
      The exit code: 0, or 130 after Ctrl-C.

    Raises:
      TriglotError: before anything compiles, if an option cannot be served.
    """
    watch = Stopwatch(started)
    plan = prepare(options)
    watch.lap("import")
    journal = Journal(plan.out, plan.trainer.steps_per_update)
    journal.write("config.json", plan.record(arguments))
    print(plan.announcement(), flush=True)
    with _debugging(options.debug), Interrupt() as interrupt:
        key = jax.random.key(options.seed)
        keys = jax.random.split(key, options.num_seeds)
        state = jax.block_until_ready(init_seeds(plan.trainer, keys, plan.hyper))
        watch.lap("init")
        program = _compile(plan, state, watch)
        state = _train(plan, program, state, journal, interrupt)
        watch.lap("train")
        checkpoint.save(plan.out / "checkpoint", state)
        watch.lap("save")
        episodes = None
        if options.eval_episodes and not interrupt.pressed:
            # The seeds' own keys are the ones before this.
            key = jax.random.fold_in(key, options.num_seeds)
            episodes = play(plan, state.agent, key)
            watch.lap("evaluate")
    written = summary(plan, journal, watch.seconds, episodes, interrupted=interrupt.pressed)
    journal.write("summary.json", written)
    if journal.history:
        curve = {options.backend: journal.metrics["episode_return"]}
        picture = plan.out / "learning_curve.png"
        plots.learning_curves(picture, curve, journal.env_steps, title=plan.title)
    print(in_words(written, plan.out))
    return INTERRUPTED if interrupt.pressed else 0


def play(plan: Plan, agent_states: Any, key: jax.Array) -> Episodes:
    """Play each seed's agent greedily: `[S, E]` episodes."""
    agent, env = plan.trainer.agent, plan.trainer.env.env
    episodes = plan.options.eval_episodes
    return jax.vmap(lambda state, key: evaluate(agent, env, state, key, num_episodes=episodes))(
        agent_states, jax.random.split(key, plan.options.num_seeds)
    )


@contextmanager
def _debugging(modes: Sequence[str]) -> Iterator[None]:
    with ExitStack() as stack:
        if "nans" in modes:
            stack.enter_context(jax.debug_nans(True))
        if "no-jit" in modes:
            stack.enter_context(jax.disable_jit())
        try:
            yield
        except FloatingPointError as error:
            if "no-jit" not in modes:
                error.add_note("The line itself is shown, slowly, by `--debug nans no-jit`.")
            raise


def _compile(plan: Plan, state: RunnerState, watch: Stopwatch) -> Program:
    """Compile the training ahead of its first call, so that tracing and compiling are told apart.

    The number of updates is an argument of the program: one serves chunks of all sizes.
    """
    if plan.options.debug:  # a compiled program can no longer be taken apart
        return lambda state, count: train_seeds(plan.trainer, state, count)
    lowered = train_seeds.lower(plan.trainer, state, np.int32(0))
    watch.lap("trace")
    program = lowered.compile()
    watch.lap("compile")
    return program


def _train(
    plan: Plan, program: Program, state: RunnerState, journal: Journal, interrupt: Interrupt
) -> RunnerState:
    """Train chunk by chunk, each of about `CHUNK_SECONDS`, until done or interrupted."""
    steps_per_update = plan.trainer.steps_per_update * plan.options.num_seeds
    bar = tqdm(
        total=plan.num_updates * steps_per_update,
        unit=" steps",
        unit_scale=True,
        dynamic_ncols=True,
        desc="all seeds" if plan.options.num_seeds > 1 else None,
        file=sys.stderr,
    )
    with bar:
        size, done = 1, 0
        while done < plan.num_updates and not interrupt.pressed:
            begun = time.perf_counter()
            count = min(size, plan.num_updates - done)
            state, buffers = program(state, np.int32(count))
            metrics = {name: np.asarray(value)[:, :count] for name, value in buffers.items()}
            journal.add_chunk(metrics)
            done += count
            rate = count / (time.perf_counter() - begun)
            size = max(1, min(int(rate * CHUNK_SECONDS), plan.trainer.chunk_size))
            returns = metrics["episode_return"]
            if np.isfinite(returns).any():
                bar.set_postfix({"return": f"{np.nanmean(returns):.1f}"}, refresh=False)
            bar.update(count * steps_per_update)
    return state
