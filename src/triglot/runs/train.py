"""`triglot train` and `triglot resume`: train with a progress bar, checkpoints and logs."""

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import jax
import numpy as np

from ..core.errors import CannotWrite, TriglotError, counted
from ..core.experiment import updates_of
from ..core.host.trainer import HostFailure
from ..core.loop.checkpoint import Checkpoints
from ..core.loop.chunks import Chunk
from ..core.loop.divergence import absurd_parameters
from ..core.loop.state import RunnerState
from ..core.loop.trainer import Program
from ..core.records import JSON, JSONDict
from ..shared.machine.files import check_free, write_json
from ..shared.machine.interrupt import Interrupt
from ..shared.statistics import format_return
from ..shared.terminal.progress import Bar, on_terminals_only, phase
from ..shared.terminal.wrapping import wrapped
from .monitoring.evaluating import (
    METRIC,
    UNSEEN,
    Evaluator,
    compile_play,
    play_after_training,
)
from .monitoring.schedule import keeping_period
from .nans import NanFinder
from .options import ResumeOptions, TrainOptions
from .plan import Plan, prepare, with_members
from .plots import learning_curves as plots
from .plots.values import draw_values
from .population import POPULATION, ranked
from .population import describe as describe_population
from .population import draw as draw_population
from .profiling import FOLDER as PROFILE
from .profiling import Profiler
from .registry.presets.describe import announcement
from .render import Videos, can_render
from .resume.binding import binding
from .resume.changing import changed, check_change, describe_change, record_change
from .resume.restoring import (
    CHECKPOINTS,
    Progress,
    kept_checkpoints,
    restore,
)
from .resume.starting import Start, read_start
from .storage import logs
from .storage.config import read_config
from .storage.journal import RECENT, Journal, MetricsChanged, read_metrics, recent_mean
from .storage.records import PROGRESS, REACHED, SUMMARY, locked, recorded_progress
from .storage.trust import CONFIG, remember
from .summary import Stopwatch, describe_summary, evaluation, next_commands, resume_notes

DIVERGED = 1
CHUNK_SECONDS = 1.0  # how often checkpoints are due and Ctrl-C is noticed

# Called with a chunk and the cause of a divergence or None; returns whether to stop.
Observe: TypeAlias = Callable[[Chunk, str | None], bool]


def _print(text: str) -> None:
    print(wrapped(text))


def _ignore(text: str) -> None:
    """Do nothing."""


def train(options: TrainOptions, *, started: float, arguments: Sequence[str]) -> int:
    """Run `triglot train`.

    Args:
      options: what was chosen.
      started: the start time of the program, from `time.perf_counter`.
      arguments: the command line, which is recorded in `config.json`.

    Returns:
      The exit code: 0; 1 if the training diverged; 128 and the number of the signal after Ctrl-C,
      SIGTERM or SIGHUP.

    Raises:
      TriglotError: before anything compiles, if an option is invalid.
    """
    watch = Stopwatch(started)
    options = with_members(options)
    with phase("building"):
        start = read_start(options)
        if start is not None:
            options = replace(options, init_from=start.folder.resolve())
        plan = prepare(options, check=None if start is None else start.check)
    watch.lap("import")
    _check_acting(plan)
    with locked(plan.out):
        check_free(plan.out)  # another program may have used it since `prepare` looked
        config = plan.write_config(arguments)
        remember(plan.out, options)
        lines = [*announcement(options), plan.announcement()]
        print(wrapped("\n".join(lines)), flush=True)
        with _journal(plan, config, 0) as journal:
            finished = run(plan, journal, watch, _started(plan, journal, start))
    return finished.exit_code


def resume(options: ResumeOptions, run_options: TrainOptions, *, started: float) -> int:
    """Run `triglot resume`: continue from the last checkpoint, bit for bit.

    A run that was stopped before its first checkpoint starts again from the beginning.

    Args:
      options: what was chosen, such as what is different from now on.
      run_options: the options with which the run was started.
      started: the start time of the program, from `time.perf_counter`.

    Returns:
      The exit code, as from `train`.

    Raises:
      TriglotError: if another program writes the run, the checkpoint is missing, damaged or does
        not fit the run, or the run cannot be changed so.
    """
    watch = Stopwatch(started)
    with phase("building"):
        plan = prepare(changed(run_options, options), folder=options.run)
    watch.lap("import")
    config = read_config(plan.out)
    with locked(plan.out):
        checkpoints = Checkpoints(plan.out / CHECKPOINTS)
        progress = Progress(None, 0)
        if checkpoints.numbers() or recorded_progress(plan.out):
            progress = restore(plan, previous=options.previous)
        if progress.edited:
            raise TriglotError(
                f"{plan.out / CONFIG} does not describe the training that its checkpoint is of: "
                f"{'; '.join(progress.edited)}. Undo the change, or start another training from "
                f"its weights: triglot train ... --init-from {plan.out}"
            )
        check_change(plan, options, progress.num_updates)
        if progress.state is not None:
            checkpoints.set_aside(progress.num_updates)
        lines = [plan.announcement(), *describe_change(plan, options, config)]
        config = record_change(plan, options, config, progress.num_updates)
        lines.append(f"{counted(progress.num_updates, 'update')} done")
        print(wrapped("\n".join(lines)), flush=True)
        with _journal(plan, config, progress.num_updates) as journal:
            if progress.state is None:
                progress = _started(plan, journal, read_start(plan.options))
            first = plan.python.get("after", 0)
            lost = journal.resume_after(progress.num_updates, first)
            for note in resume_notes(plan, config, progress.num_updates, lost):
                print(wrapped(note), flush=True)
            finished = run(plan, journal, watch, progress)
    return finished.exit_code


def record(plan: Plan, progress: Progress, observe: Observe, *, started: float) -> "Finished":
    """Train in Python what `triglot train` trains, with the same files; nothing is printed.

    Args:
      plan: of the training, whose folder is empty.
      progress: the state of an earlier training, or none.
      observe: see `run`.
      started: the start of the call, from `time.perf_counter`.
    """
    with on_terminals_only(), locked(plan.out):
        config = plan.write_config(())
        remember(plan.out, plan.options)
        with _journal(plan, config, progress.num_updates) as journal:
            journal.num_updates = progress.num_updates
            return run(plan, journal, Stopwatch(started), progress, observe=observe, report=_ignore)


def save(plan: Plan, state: RunnerState, metrics: Mapping[str, np.ndarray]) -> None:
    """Write the folder of a training that is done, as far as it is known.

    Args:
      plan: of the training, whose folder is empty.
      state: `[S, ...]`.
      metrics: of its last updates, by name `[S, U]`.
    """
    done = updates_of(state)
    with locked(plan.out):
        config = plan.write_config(())
        remember(plan.out, plan.options)
        with _journal(plan, config, 0) as journal:
            journal.num_updates = done - len(next(iter(metrics.values()))[0])
            journal.add_chunk(metrics)
            _checkpoint(plan, journal, state)
            write_json(plan.out / SUMMARY, _results(plan, journal, state))
            _draw(plan, journal, state)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a training ended.

    Attributes:
      state: `[S, ...]`, on one device.
      diverged: the cause of a divergence; None without one.
      signal: the signal that interrupted it; None without one.
    """

    state: RunnerState
    diverged: str | None
    signal: int | None

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        if self.signal is not None:
            return 128 + self.signal
        return DIVERGED if self.diverged else 0


def _started(plan: Plan, journal: Journal, start: Start | None) -> Progress:
    """Start from another run's weights, if any; they are saved, since that run may change."""
    if start is None:
        return Progress(None, 0)
    print(wrapped(start.describe(plan.agent)), flush=True)
    state = start.initial(plan.experiment)
    _checkpoint(plan, journal, state)
    return Progress(state, 0)


def _check_acting(plan: Plan) -> None:
    """Check that acting equals learning, if asked to; a difference is an error."""
    if "acting" in plan.options.debug:
        from ..checks.acting.check import check_training

        with phase("checking"):
            report = check_training(plan.experiment.trainer, plan.experiment.keys[0])
        print(wrapped(f"acting equals learning: {report}"), flush=True)


@contextmanager
def _journal(plan: Plan, config: JSON, done: int) -> Iterator[Journal]:
    """Open the journal and the logs; if they cannot be written, say how to resume."""
    try:
        started = logs.start(plan.options.log, plan.out, config, plan.experiment.num_updates, done)
        with closing(started) if started else nullcontext():
            every = plan.options.metrics_every
            yield Journal(plan.out, plan.experiment.steps_per_update, every=every, logs=started)
    except CannotWrite as error:
        raise TriglotError(
            f"{error} Earlier checkpoints are intact: free space or fix permissions, then "
            f"`triglot resume {plan.out}` continues from the last one."
        ) from error


def run(
    plan: Plan,
    journal: Journal,
    watch: Stopwatch,
    progress: Progress,
    *,
    observe: Observe | None = None,
    report: Callable[[str], None] = _print,
) -> Finished:
    """Train to the end, and write the metrics, checkpoints, plots and summary of the run.

    Args:
      plan: of the training.
      journal: writes the metrics.
      watch: began with the program.
      progress: the state to continue from; without one, the training begins.
      observe: called after each chunk, with what diverged; returns whether to stop.
      report: called with each text for people.
    """
    options, done = plan.options, progress.num_updates
    starts_at = plan.experiment.updates_before_learning
    profiler = Profiler(plan.out / PROFILE, starts_at) if options.profile else None
    videos = Videos(plan, journal.logs)
    evaluator = Evaluator(plan, videos.add)
    background = ThreadPoolExecutor(3)
    with _debugging(options.debug), Interrupt() as interrupt, background:
        state, diverged, evaluated, stopped = progress.state, None, None, False
        if state is None or done < plan.experiment.num_updates:
            with closing(plan.experiment.program()) as program, profiler or nullcontext():
                state = _prepare(plan, program, state, background, watch)
                keeping = keeping_period(options, plan.experiment.steps_per_update)
                ends = [period for period in (evaluator.period, keeping) if period]
                chunks_of = partial(plan.experiment.chunks, program=program, boundaries=ends)
                finder = NanFinder(plan.experiment, program) if finds_nans(options) else None
                if finder is not None:
                    chunks = finder.chunks(state)
                elif profiler is None:
                    chunks = chunks_of(state, target_seconds=CHUNK_SECONDS)
                else:
                    chunks = profiler.chunks(
                        chunks_of, state, plan.experiment.num_updates, target_seconds=CHUNK_SECONDS
                    )
                state, diverged, stopped = _train_in_chunks(
                    plan,
                    chunks,
                    state,
                    evaluator=evaluator,
                    journal=journal,
                    interrupt=interrupt,
                    observe=observe,
                )
                if diverged and finder is not None:
                    diverged = f"{diverged}; {finder.explain(state)}"
        watch.lap("train")
        if diverged is None:
            _checkpoint(plan, journal, state)
        watch.lap("save")
        if options.eval_episodes and not interrupt.pressed and diverged is None:
            with phase("evaluating"):
                evaluated = evaluation(*play_after_training(plan, state))
                state = plan.experiment.whole(state)
                videos.add(journal.num_updates, state)
            watch.lap("evaluate")
        state = plan.experiment.whole(state)
        if evaluator.seconds:
            watch.move("train", "evaluate", evaluator.seconds)
    steps = (journal.num_updates - done) * plan.experiment.steps_per_update * options.num_seeds
    results = _results(plan, journal, state) | {
        "interrupted": interrupt.pressed or stopped,
        "evaluation": evaluated,
        "steps_per_second": steps / watch.seconds["train"] if steps else None,  # of all seeds
        "seconds": watch.seconds,
        "diverged": diverged,
        REACHED: evaluator.reached,
        "warning": None if diverged else absurd_parameters(state),
        POPULATION: ranked(plan, state, evaluated),
    }
    write_json(plan.out / SUMMARY, results)
    _draw(plan, journal, state)
    population = results[POPULATION]
    if population is not None and journal.returns:
        draw_population(plan, population["best_member"])
    explained = finds_nans(options)
    report(describe_summary(results, plan.out, journal.returns, explained=explained))
    if population is not None:
        report(describe_population(population))
    if profiler is not None:
        report(profiler.describe())
    if interrupt.pressed:
        report(f"to continue: triglot resume {plan.out}")
    elif not diverged:
        report(next_commands(plan.out, renders=can_render(plan.env)))
    return Finished(state=state, diverged=diverged, signal=interrupt.number)


def _results(plan: Plan, journal: Journal, state: RunnerState) -> JSONDict:
    """Summarize a training that nobody watched, as far as it is known."""
    return {
        "interrupted": journal.num_updates < plan.experiment.num_updates,
        "num_updates": journal.num_updates,
        "num_steps": journal.env_steps,  # per seed
        "num_seeds": plan.options.num_seeds,
        "evaluation": None,
        "steps_per_second": None,
        "seconds": {},
        "diverged": None,
        REACHED: None,
        "warning": absurd_parameters(state),
        POPULATION: ranked(plan, state, None),
    }


def _prepare(
    plan: Plan, program: Program, state: RunnerState | None, background: Executor, watch: Stopwatch
) -> RunnerState:
    """Initialize, unless there is a state, and compile; what follows is prepared meanwhile."""
    if "no-jit" in plan.options.debug:
        with phase("initializing"):
            state = plan.experiment.start() if state is None else state
            jax.block_until_ready(state)
        watch.lap("init")
        return state

    def compile_evaluation() -> None:
        if plan.options.eval_episodes:
            background.submit(compile_play, plan, shapes)

    def on_stage(name: str) -> None:
        watch.lap(name)
        if name == "trace":  # from here on XLA compiles, and Python has nothing to do
            background.submit(_import_for_saving)
            if plan.options.eval_every is not None:
                compile_evaluation()

    with phase("compiling"):
        if state is None:
            shapes = plan.experiment.shapes
            state = plan.experiment.start_and_compile(program, background, on_stage)
        else:
            shapes = jax.eval_shape(lambda: state)  # the training donates the state
            program.compile(state, on_stage)
    if plan.options.eval_every is None:  # needed at the end: the training begins first
        compile_evaluation()
    return state


def _import_for_saving() -> None:
    """Import what the checkpoint, the plot and the summary need."""
    for name in ("orbax.checkpoint", "matplotlib.figure", "scipy.special"):
        importlib.import_module(name)


def _draw(plan: Plan, journal: Journal, state: RunnerState) -> None:
    if journal.returns:
        env_steps, metrics = read_metrics(plan.out, (*plots.INFORMATIVE, METRIC, UNSEEN))
        metric = plots.most_informative_metric(metrics)
        curves = {plan.options.backend: plots.Curve(env_steps, metrics[metric])}
        if METRIC in metrics:
            metric = plots.BOTH_RETURNS
            both = {"in training": "episode_return", "greedy evaluation": METRIC}
            both |= {"greedy, unseen levels": UNSEEN} if UNSEEN in metrics else {}
            curves = {
                name: plots.Curve(env_steps, metrics[column]) for name, column in both.items()
            }
        path = plan.out / "learning_curve.png"
        plots.learning_curves(path, curves, title=plan.title, metric=metric)
    path = plan.out / "values.png"
    draw_values(path, plan.agent, plan.env, state.agent, plan.title)


def finds_nans(options: TrainOptions) -> bool:
    """Return whether the operation behind a NaN is looked for; without jit, JAX raises there."""
    return "nans" in options.debug and "no-jit" not in options.debug


@contextmanager
def _debugging(modes: Sequence[str]) -> Iterator[None]:
    with ExitStack() as stack:
        if "no-jit" in modes:
            stack.enter_context(jax.disable_jit())
            if "nans" in modes:
                stack.enter_context(jax.debug_nans(True))
        yield


def _train_in_chunks(
    plan: Plan,
    chunks: Iterator[Chunk],
    state: RunnerState,
    *,
    evaluator: Evaluator,
    journal: Journal,
    interrupt: Interrupt,
    observe: Observe | None,
) -> tuple[RunnerState, str | None, bool]:
    """Train until done, interrupted, diverged, stopped by the observer, or at `--stop-at`.

    Returns:
      The last states, a description of the divergence or None, and whether the observer ended it.
    """
    options, experiment = plan.options, plan.experiment
    keeping = keeping_period(options, experiment.steps_per_update)
    steps_per_update = experiment.steps_per_update * options.num_seeds
    diverged, stopped, saved = None, False, time.perf_counter()
    with Bar(
        total=experiment.num_updates * steps_per_update,
        initial=journal.num_updates * steps_per_update,
        unit=" steps",
        unit_scale=True,
        desc="all seeds" if options.num_seeds > 1 else None,
    ) as bar:
        try:
            for chunk in chunks:
                state = chunk.runner_states
                journal.check_folder()
                diverged = experiment.divergence(chunk)
                played = None if diverged else state
                metrics = evaluator.measured(chunk.metrics, chunk.num_updates, played)
                journal.add_chunk(metrics)
                if observe is not None:
                    stopped = observe(replace(chunk, metrics=metrics), diverged)
                bar.set_postfix_str(_shown_returns(journal, evaluator), refresh=False)
                bar.update(chunk.count * steps_per_update)
                ended = interrupt.pressed or evaluator.reached is not None
                if diverged or ended or stopped:
                    break
                if keeping is not None and chunk.num_updates % keeping == 0:
                    folder = kept_checkpoints(plan.out)
                    experiment.save(folder.folder, state, of=binding(plan), keep=folder.keep)
                seconds = options.checkpoint_seconds
                if seconds and time.perf_counter() - saved >= seconds:
                    _checkpoint(plan, journal, state)
                    saved = time.perf_counter()
        except MetricsChanged as error:
            _checkpoint(plan, journal, state)
            raise TriglotError(
                f"{error} The training is saved after "
                f"{counted(journal.num_updates, 'update')}: "
                f"`triglot resume {plan.out}` continues it, without the metrics that are gone."
            ) from None
        except HostFailure as failure:  # the state before it can be continued
            if failure.metrics:
                journal.add_chunk(evaluator.measured(failure.metrics, 0, None))
            _checkpoint(plan, journal, failure.runner_state)
            resumes = f"`triglot resume {plan.out}` continues from it."
            failure.args = (f"{failure} The state before it is saved: {resumes}",)
            raise
    return state, diverged, stopped


def _shown_returns(journal: Journal, evaluator: Evaluator) -> str:
    """Format the returns for the progress bar: of the last episodes and the last evaluation."""
    recent, parts = recent_mean(np.asarray(journal.returns)), []
    if np.isfinite(recent):
        parts.append(f"return={format_return(recent)} (last {RECENT:.0%})")
    if evaluator.last_return is not None:
        parts.append(f"greedy={format_return(evaluator.last_return)}")
    return ", ".join(parts)


def _checkpoint(plan: Plan, journal: Journal, state: RunnerState) -> None:
    journal.check_folder()
    plan.experiment.save(plan.out / CHECKPOINTS, state, of=binding(plan))
    write_json(plan.out / PROGRESS, {"num_updates": journal.num_updates})
