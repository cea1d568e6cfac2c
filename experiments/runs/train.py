"""`triglot train`: one training, watched, and what it leaves behind."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from ...core.errors import CannotWrite, TriglotError, writing
from ...core.evaluate import Episodes, evaluate
from ...core.host.trainer import HostFailure, HostProgram, HostTrainer
from ...core.host_environment import HostEnvironment
from ...core.loop.checkpoint import Checkpoints
from ...core.loop.state import RunnerState
from ...core.loop.trainer import init_seeds, train_seeds
from ..plots import learning_curves as plots
from ..plots.values import draw_values
from ..statistics import format_return
from . import logs
from .divergence import divergence
from .files import write_json
from .interrupt import Interrupt
from .journal import Journal
from .plan import Plan, prepare
from .summary import Stopwatch, in_words, summary

if TYPE_CHECKING:
    from ..options import TrainOptions

INTERRUPTED = 130  # what a shell calls an end by Ctrl-C
DIVERGED = 1
CHECKPOINTS = "checkpoints"
CHUNK_SECONDS = 1.0  # between looks at the clock, and for Ctrl-C

Program: TypeAlias = Callable[[RunnerState, np.int32], tuple[RunnerState, dict[str, Any]]]


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
    record = plan.record(arguments)
    write_json(plan.out / "config.json", record)
    print(plan.announcement(), flush=True)
    with _journal(plan, record, 0) as journal:
        return _run(plan, journal, watch, Progress(None, 0))


def resume(options: "TrainOptions", folder: Path, *, started: float, previous: bool = False) -> int:
    """Run `triglot resume`: go on from the last checkpoint, as if nothing had happened.

    A run that was killed before its first checkpoint begins again, with the same result.

    Args:
      options: what the training was begun with.
      folder: where it is.
      started: when the program started, by `time.perf_counter`.
      previous: where the last checkpoint is damaged, take the one before.

    Returns:
      The exit code: 0, or 130 after Ctrl-C.

    Raises:
      TriglotError: if the checkpoint is damaged or of another training.
    """
    watch = Stopwatch(started)
    plan = prepare(options, folder=folder)
    watch.lap("import")
    begun = bool(Checkpoints(plan.out / CHECKPOINTS).numbers())
    progress = restore(plan, previous=previous) if begun else Progress(None, 0)
    print(f"{plan.announcement()}\n{progress.num_updates:,} updates are done", flush=True)
    if isinstance(plan.env, HostEnvironment):
        print(
            f"what {plan.env.name} was doing cannot be saved: its environments begin new episodes"
        )
    with _journal(plan, plan.record([]), progress.num_updates) as journal:
        journal.go_on_after(progress.num_updates)
        return _run(plan, journal, watch, progress)


class Progress(NamedTuple):
    """Where a training stands: its state (None before the first update) and the updates done."""

    state: RunnerState | None
    num_updates: int


def restore(plan: Plan, *, previous: bool = False) -> Progress:
    """Read the last checkpoint of a training's folder.

    Raises:
      TriglotError: if there is none, or it is damaged or of another training.
    """
    like = jax.eval_shape(lambda: _initial(plan))
    done, state = Checkpoints(plan.out / CHECKPOINTS).restore(like, previous=previous)
    return Progress(state, done)


@contextmanager
def _journal(plan: Plan, record: Mapping[str, Any], done: int) -> Iterator[Journal]:
    """Open the journal and the logs asked for; where they cannot be written, say how to go on."""
    try:
        begun = logs.begin(plan.options.log, plan.out, record, plan.num_updates, done)
        with closing(begun) if begun else nullcontext():
            yield Journal(plan.out, plan.trainer.steps_per_update, begun)
    except CannotWrite as error:
        raise TriglotError(
            f"{error} What was saved before is whole: once there is room and permission to write, "
            f"`triglot resume {plan.out}` goes on from there."
        ) from error


def _initial(plan: Plan) -> RunnerState:
    keys = jax.random.split(jax.random.key(plan.options.seed), plan.options.num_seeds)
    return init_seeds(plan.trainer, keys, plan.hyper)


def _run(plan: Plan, journal: Journal, watch: Stopwatch, progress: Progress) -> int:
    options = plan.options
    with _debugging(options.debug), Interrupt() as interrupt:
        state = progress.state
        state = jax.block_until_ready(_initial(plan) if state is None else state)
        watch.lap("init")
        diverged = None
        if progress.num_updates < plan.num_updates:
            program = _compile(plan, state, watch)
            with closing(program) if isinstance(program, HostProgram) else nullcontext():
                state, diverged = _train(
                    plan, program, state, journal, interrupt, progress.num_updates
                )
        watch.lap("train")
        if diverged is None:
            _checkpoint(plan, journal, state)
        watch.lap("save")
        episodes = None
        if options.eval_episodes and not interrupt.pressed and diverged is None:
            # The seeds' own keys are the ones before this.
            key = jax.random.fold_in(jax.random.key(options.seed), options.num_seeds)
            episodes = play(plan, state.agent, key, num_episodes=options.eval_episodes)
            watch.lap("evaluate")
    written = summary(
        plan,
        journal,
        watch.seconds,
        episodes,
        resumed_at=progress.num_updates,
        interrupted=interrupt.pressed,
        diverged=diverged,
    )
    journal.write("summary.json", written)
    if journal.history:
        metrics = journal.metrics  # which joins all chunks
        metric = plots.telling(metrics)
        curves = {options.backend: plots.Curve(journal.env_steps, metrics[metric])}
        picture = plan.out / "learning_curve.png"
        plots.learning_curves(picture, curves, title=plan.title, metric=metric)
    parts = (plan.trainer.agent, plan.env)
    with writing(plan.out):
        draw_values(plan.out / "values.png", *parts, state.agent, plan.title)
    print(in_words(written, plan.out))
    if interrupt.pressed:
        print(f"to go on: triglot resume {plan.out}")
        return INTERRUPTED
    return DIVERGED if diverged else 0


def play(plan: Plan, agent_states: Any, key: jax.Array, **how: Any) -> Episodes:
    """Play `[S, E]` whole episodes with each seed's agent; `how` as `evaluate` takes it."""
    keys = jax.random.split(key, plan.options.num_seeds)

    def of_one(state: Any, key: jax.Array) -> Episodes:
        return evaluate(plan.trainer.agent, plan.env, state, key, **how)

    if not isinstance(plan.env, HostEnvironment):
        return jax.vmap(of_one)(agent_states, keys)
    one_by_one = [
        of_one(jax.tree.map(lambda leaf, s=seed: leaf[s], agent_states), keys[seed])
        for seed in range(len(keys))
    ]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *one_by_one)


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
    if isinstance(plan.trainer, HostTrainer):
        program = HostProgram(plan.trainer)
        if not plan.options.debug:
            program.compile(state)
        watch.lap("compile")
        return program
    if plan.options.debug:  # a compiled program can no longer be taken apart
        return lambda state, count: train_seeds(plan.trainer, state, count)
    lowered = train_seeds.lower(plan.trainer, state, np.int32(0))
    watch.lap("trace")
    program = lowered.compile()
    watch.lap("compile")
    return program


def _train(
    plan: Plan,
    program: Program,
    state: RunnerState,
    journal: Journal,
    interrupt: Interrupt,
    done: int,
) -> tuple[RunnerState, str | None]:
    """Train chunk by chunk, each of about `CHUNK_SECONDS`, until done, interrupted or diverged."""
    steps_per_update = plan.trainer.steps_per_update * plan.options.num_seeds
    bar = tqdm(
        total=plan.num_updates * steps_per_update,
        initial=done * steps_per_update,
        unit=" steps",
        unit_scale=True,
        dynamic_ncols=True,
        desc="all seeds" if plan.options.num_seeds > 1 else None,
        file=sys.stderr,
    )
    diverged, saved = None, time.perf_counter()
    with bar:
        size = 1
        while done < plan.num_updates and not interrupt.pressed and diverged is None:
            begun = time.perf_counter()
            count = min(size, plan.num_updates - done)
            try:
                state, buffers = program(state, np.int32(count))
            except HostFailure as failure:
                _keep(plan, journal, failure)
                raise
            metrics = {name: np.asarray(value)[:, :count] for name, value in buffers.items()}
            journal.add_chunk(metrics)
            done += count
            rate = count / (time.perf_counter() - begun)
            size = max(1, min(int(rate * CHUNK_SECONDS), plan.trainer.chunk_size))
            returns = metrics["episode_return"]
            if np.isfinite(returns).any():
                bar.set_postfix(
                    {"return": format_return(float(np.nanmean(returns)))}, refresh=False
                )
            bar.update(count * steps_per_update)
            diverged = divergence(plan.env.name, state, metrics, done - count)
            seconds = plan.options.checkpoint_seconds
            if seconds and time.perf_counter() - saved >= seconds and diverged is None:
                _checkpoint(plan, journal, state)
                saved = time.perf_counter()
    return state, diverged


def _keep(plan: Plan, journal: Journal, failure: HostFailure) -> None:
    """Save what was learned before an environment failed, and say how to go on."""
    if failure.metrics:
        journal.add_chunk(failure.metrics)
    _checkpoint(plan, journal, failure.runner_state)
    failure.args = (
        f"{failure} What was learned before is saved: `triglot resume {plan.out}` goes on from it.",
    )


def _checkpoint(plan: Plan, journal: Journal, state: RunnerState) -> None:
    Checkpoints(plan.out / CHECKPOINTS).save(len(journal.env_steps), state)
