"""The options of the commands that write, continue, play and list runs."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

from .registry.arg import Arg, Count, Devices, Name, RunFolder
from .registry.options import MachineOptions, SharedOptions


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Options of the commands that send metrics to loggers.

    Attributes:
      log: loggers that also get the metrics: tensorboard, wandb (Weights & Biases), or both. They
        get each metric of each seed and the mean over seeds, averaged to at most 1,000 points.
      wandb: for --log wandb, arguments of wandb.init by their names: project, entity, group, id,
        resume (allow, never, must or auto).
    """

    log: Annotated[tuple[str, ...], Arg("tensorboard|wandb ...", "none")] = ()
    wandb: Annotated[
        tuple[str, ...], Arg("NAME=VALUE ...", "project=triglot resume=allow, or $WANDB_...")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class RunsOptions:
    """Options of `triglot runs`.

    Attributes:
      folder: where to look for runs, also in folders inside it.
      where: show only runs with these options, such as algorithm=ppo or state=finished.
      sort: order the rows by a column: age (newest first), return, steps (largest first), run,
        state, seeds, algorithm, networks or env.
    """

    folder: Annotated[Path, Arg("FOLDER", "runs", True)] = Path("runs")
    where: Annotated[tuple[str, ...], Arg("NAME=VALUE ...", "all runs")] = ()
    sort: Name = "age"


@dataclass(frozen=True, kw_only=True)
class WatchOptions(LogOptions):
    """Options of `triglot watch`.

    Attributes:
      run: a folder written by `triglot train`, which another program may be training.
      metric: a name in metrics.jsonl, of which the curve is shown.
      seconds: seconds between two refreshes.
    """

    run: RunFolder
    metric: Name = "episode_return"
    seconds: Annotated[float, Arg("SECONDS")] = 2.0


@dataclass(frozen=True, kw_only=True)
class TrainOptions(SharedOptions, MachineOptions, LogOptions):
    """Options of `triglot train`.

    Attributes:
      backend: the network library: haiku, linen, nnx, equinox, keras, torch, jax (plain functions)
        or table (tabular algorithms).
      arithmetic: native, the operations of the library; leaf_order, gradients are summed in the
        same order in all libraries; canonical, all libraries are bitwise identical.
      network: a custom network: package.module:object, a Network or a function of obs_spec and
        action_spec that returns one. If the algorithm has several, each is
        NAME=package.module:object.
      devices: number of devices to divide the training among; on a CPU they share its cores. 1
        trains all seeds in one program.
      shard: what to divide: seeds, each device trains some of the seeds; or envs, each device steps
        some of the environments of every seed and learns from its part of each batch.
      out: a new folder for the results.
      eval_every: evaluate during the training too, every N environment steps per seed; the best
        checkpoint is kept.
      stop_at: stop when the mean return over seeds reaches this value. It is the greedy return if
        --eval-every is set, and otherwise the return of the training episodes of the last second.
      checkpoint_seconds: seconds between checkpoints; 0 writes one at the end only.
      keep_every: keep a checkpoint every N environment steps per seed, for `triglot rate`.
      metrics_every: write metrics every K updates, one line each in metrics.jsonl.
      init_from: a run whose weights the training starts from, of any library.
      init_names: take only the parameters with these names, with * for any text: canonical ones, or
        those of the network's library.
      init_seed_index: which of that run's seeds starts all seeds, counted from 0.
      population: number of members of population-based training. Each member is a seed; every
        --exploit-every updates, the worst members copy the best ones and perturb their
        hyperparameters.
      exploit_every: updates per generation of the population.
      perturb: hyperparameters that the population changes, separated by commas: NAME, or
        NAME=log:LOW..HIGH or NAME=LOW..HIGH, from which each member draws its first value.
      exploit_fraction: share of the members that copy another one in each generation, at most 0.5.
      selection: truncation, each of the worst members copies one of the best, drawn at random; or
        rank, the worst member copies the best, the second worst the second best.
      print_config: print all options as TOML, which --config reads, and exit.
      debug: nans trains one update at a time, and names the update, the loss, the parameter and the
        first operation of a NaN. no-jit disables compilation, so that print and breakpoints
        work everywhere; it is about a thousand times slower. acting first checks, with fixed
        parameters, that the losses see the policy outputs that the agent acted on.
      profile: trace a few updates with JAX's profiler, for Perfetto or TensorBoard.
    """

    backend: Name = "linen"
    arithmetic: Annotated[str | None, Arg("NAME", "canonical; native with a custom network")] = None
    network: Annotated[tuple[str, ...], Arg("OBJECT ...", "built in")] = ()
    devices: Devices = None
    shard: Annotated[str | None, Arg("seeds|envs", "seeds, if there are N; else envs")] = None
    out: Annotated[Path | None, Arg("FOLDER", "runs/ALGORITHM-ENVIRONMENT-BACKEND-TIME")] = None
    eval_every: Annotated[int | None, Arg("N", "after training only")] = None
    stop_at: Annotated[float | None, Arg("RETURN", "train to the end")] = None
    checkpoint_seconds: Annotated[float, Arg("SECONDS")] = 60.0
    keep_every: Annotated[int | None, Arg("N", "the last two")] = None
    metrics_every: Annotated[int, Arg("K")] = 1
    debug: Annotated[tuple[str, ...], Arg("nans|no-jit|acting ...", "none")] = ()
    init_from: Annotated[Path | None, Arg("FOLDER", "none")] = None
    init_names: Annotated[tuple[str, ...], Arg("NAME ...", "all")] = ()
    init_seed_index: Annotated[
        int | None, Arg("N", "seed by seed, if both have as many; the only one")
    ] = None
    population: Annotated[int | None, Arg("N", "none: independent seeds")] = None
    exploit_every: Annotated[int, Arg("N")] = 20
    perturb: Annotated[tuple[str, ...], Arg("NAME,NAME ...", "none")] = ()
    exploit_fraction: Annotated[float, Arg("SHARE")] = 0.2
    selection: Annotated[str, Arg("truncation|rank")] = "truncation"
    print_config: bool = False
    profile: bool = False


# Not written for later runs: the folder is given again, and settings of a machine never come from
# a run.
MACHINE = tuple(field.name for field in fields(MachineOptions))
LEFT_OUT = ("out", "print_config", "profile", "no_preset", *MACHINE)


@dataclass(frozen=True, kw_only=True)
class RunOptions(MachineOptions):
    """Options of the commands that continue or play a run.

    Attributes:
      run: a folder written by `triglot train`.
      previous: if the last checkpoint is damaged, use the one before it.
      trust: import the custom code that the run names, although you did not start it here.
    """

    run: RunFolder
    previous: bool = False
    trust: bool = False


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(RunOptions):
    """Options of `triglot resume`.

    Attributes:
      backend: continue on this network library: weights and the optimizer's moments are translated.
      total_steps: environment steps per seed, counted from the start of the run; a larger number
        extends the run.
      learning_rate: learning rate of an extended run. A schedule is counted from the start of the
        run: linear(3e-4, 0) falls to 0 at the new end.
      profile: trace a few updates with JAX's profiler, for Perfetto or TensorBoard.
      devices: number of devices to divide the training among.
      shard: what to divide, seeds or envs.
      stop_at: stop when the mean return over seeds reaches this value. A run that stopped at its
        value continues with a higher one, or to --total-steps.
    """

    backend: Annotated[str | None, Arg("NAME", "the run's")] = None
    total_steps: Annotated[int | None, Arg("N", "the run's")] = None
    stop_at: Annotated[float | None, Arg("RETURN", "the run's")] = None
    learning_rate: Annotated[float | None, Arg("RATE", "the run's")] = None
    profile: bool = False
    devices: Annotated[int | None, Arg("N", "the run's")] = None
    shard: Annotated[str | None, Arg("seeds|envs", "the run's, if N divides it")] = None


@dataclass(frozen=True, kw_only=True)
class PlayOptions(RunOptions):
    """Options of the commands that play a run.

    Attributes:
      checkpoint: last, or best: the one with the highest return at --eval-every.
    """

    checkpoint: Annotated[str, Arg("best|last")] = "last"


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(PlayOptions):
    """Options of `triglot evaluate`.

    Attributes:
      env: evaluate in another environment with the same observations and actions, such as whole
        Atari games after a training on single lives.
      episodes: whole episodes per seed.
      sampled: sample actions instead of taking the argmax.
      seed: random seed of the episodes.
      max_steps: maximum number of steps per episode.
      devices: number of devices to divide the seeds among.
    """

    env: Annotated[str | None, Arg("ENVIRONMENT", "the run's")] = None
    episodes: Count = 128
    sampled: bool = False
    seed: Count = 0
    max_steps: Count = 100_000
    devices: Devices = None


@dataclass(frozen=True, kw_only=True)
class RenderOptions(PlayOptions):
    """Options of `triglot render`.

    Attributes:
      out: the file to write; an existing file is replaced.
      episodes: number of episodes, one after the other in the same file.
      seed_index: which of the run's seeds acts, counted from 0.
      sampled: sample actions instead of taking the argmax.
      seed: random seed of the episodes.
      max_steps: maximum number of steps per episode.
    """

    out: Annotated[Path | None, Arg("FILE", "episode.gif or .html in the run's folder")] = None
    episodes: Count = 1
    seed_index: Annotated[Count | None, Arg("N", "0, and the best member of a population")] = None
    sampled: bool = False
    seed: Count = 0
    max_steps: Count = 1000


@dataclass(frozen=True, kw_only=True)
class CurvesOptions:
    """Options of `triglot curves`.

    Attributes:
      runs: folders written by `triglot train`.
      out: the PNG to write; an existing file is replaced.
      metric: a name in metrics.jsonl.
      smooth: number of updates averaged to one point.
      labels: labels of the runs, in the same order.
    """

    runs: Annotated[tuple[Path, ...], Arg("FOLDER ...", positional=True)] = ()
    out: Annotated[Path, Arg("FILE")] = Path("curves.png")
    metric: Name = "episode_return"
    smooth: Annotated[int | None, Arg("N", "chosen to give 80 points")] = None
    labels: Annotated[tuple[str, ...], Arg("TEXT ...", "what differs between the runs")] = ()
