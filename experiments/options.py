"""The options of every command, as plain dataclasses.

`experiments.parsing` turns them into a command line. Nothing here imports the library that parses,
so that `load_run` and the workers of a comparison can use the same classes.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from .arg import Arg, Count, Devices, Name, RunFolder


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """A command without options."""


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    """Options of `triglot completion`.

    Attributes:
      shell: bash or zsh.
    """

    shell: Annotated[str, Arg("SHELL", positional=True)]


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
class WatchOptions:
    """Options of `triglot watch`.

    Attributes:
      run: a folder written by `triglot train`, which another program may be training.
      metric: a name in metrics.jsonl, of which the curve is shown.
      seconds: seconds between two looks at the files.
    """

    run: RunFolder
    metric: Name = "episode_return"
    seconds: Annotated[float, Arg("SECONDS")] = 2.0


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Options of `triglot list`.

    Attributes:
      suite: list the environments of this suite, which imports its library; or presets.
    """

    suite: Annotated[str | None, Arg("SUITE", "everything that can be listed", True)] = None


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """Options of `triglot train`, `triglot compare` and `triglot sweep`.

    Attributes:
      algorithm: a name from `triglot list`, or package.module:object.
      env: suite:name, such as gymnax:CartPole-v1, or package.module:object; options of the
        environment follow after commas: jumanji:Maze-v0,num_rows=5,num_cols=5.
      num_seeds: independent seeds, vmapped.
      seed: random seed.
      total_steps: environment steps per seed, rounded up to whole rollouts.
      eval_episodes: greedy evaluation episodes per seed after training.
      optimizer: adam, adamw, rmsprop, sgd or lion, or package.module:object, a function of the
        hyperparameters that returns an optax.GradientTransformation.
      no_preset: leave out the tuned settings for this algorithm and environment that ship with
        triglot (`triglot list presets`). A setting that is given wins over the preset's.
      preset: the preset that the command line used, with the settings that were given instead of
        its own; None if there is none.
      config: the algorithm's `Config`, or the fields that differ from its defaults.
      hyper: the algorithm's `Hyperparams`, or the fields that differ from its defaults.
    """

    algorithm: Annotated[str, Arg("ALGORITHM", positional=True)]
    env: Annotated[str, Arg("ENVIRONMENT", positional=True)]
    num_seeds: Count = 1
    seed: Count = 0
    total_steps: Count = 500_000
    eval_episodes: Count = 128
    optimizer: Annotated[str | None, Arg("OPTIMIZER", "the algorithm's own")] = None
    no_preset: bool = False
    preset: Annotated[str | None, Arg("NAME", derived=True)] = None
    config: Any = field(default_factory=dict)
    hyper: Any = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Options about this machine, which are never read from a run folder.

    Attributes:
      compilation_cache: folder of JAX's compilation cache.
      no_compilation_cache: disable the compilation cache.
    """

    compilation_cache: Annotated[
        Path | None, Arg("FOLDER", "triglot/jax in the user's cache directory")
    ] = None
    no_compilation_cache: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainOptions(SharedOptions, MachineOptions):
    """Options of `triglot train`.

    Attributes:
      backend: the network library: haiku, linen, nnx, equinox, or table.
      arithmetic: native, no canonicalization; leaf_order, gradients are summed in one order;
        canonical, all libraries agree bit for bit.
      network: a custom network: package.module:object, a Network or a function of obs_spec and
        action_spec that returns one. Or several, each as NAME=package.module:object.
      devices: devices that the training is divided among; on a CPU they share its cores. 1 trains
        all seeds in one program.
      shard: what is divided: seeds, each device trains some of them; or envs, each steps some of
        the environments of every seed and learns from a part of each batch.
      out: a new folder for the results.
      eval_every: evaluate during the training too, at multiples of N environment steps per seed;
        the best checkpoint is kept.
      stop_at: stop when the mean return over seeds reaches this: the greedy one of --eval-every, or
        without it, that of the training episodes in about a second.
      checkpoint_seconds: seconds between checkpoints; 0 writes one at the end only.
      metrics_every: write the metrics of every k-th update only; metrics.jsonl has one line each.
      log: loggers in addition to metrics.jsonl: tensorboard, wandb (Weights & Biases), or both.
        They get each metric of each seed and the mean over seeds, averaged to at most 1,000 points.
      init_from: a run whose weights the training starts from, of any library.
      init_names: take only the parameters with these canonical names, with * for any text.
      init_seed_index: which of that run's seeds starts all seeds, counted from 0.
      print_config: print all options as TOML, which --config reads, and do nothing else.
      debug: nans stops at the first NaN. no-jit disables compilation, so that print and breakpoints
        work everywhere; it is about a thousand times slower.
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
    metrics_every: Annotated[int, Arg("K")] = 1
    log: Annotated[tuple[str, ...], Arg("tensorboard|wandb ...", "none")] = ()
    debug: Annotated[tuple[str, ...], Arg("nans|no-jit ...", "none")] = ()
    init_from: Annotated[Path | None, Arg("FOLDER", "none")] = None
    init_names: Annotated[tuple[str, ...], Arg("NAME ...", "all")] = ()
    init_seed_index: Annotated[
        int | None, Arg("N", "seed by seed, if both have as many; the only one")
    ] = None
    print_config: bool = False
    profile: bool = False


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """Options of commands that have a list of independent jobs.

    Attributes:
      executor: sequential, one job after the other in this process, with all cores; local, each
        job in a process pinned to one core; ray, each job on one core of a Ray cluster.
      jobs: how many jobs run at the same time.
      address: HOST:PORT of the Ray cluster.
    """

    executor: Annotated[str | None, Arg("NAME", "local with --jobs, else sequential")] = None
    jobs: Annotated[int | None, Arg("N", "as many as there are cores")] = None
    address: Annotated[str | None, Arg("ADDRESS", "auto, the cluster of this machine")] = None


@dataclass(frozen=True, kw_only=True)
class CompareOptions(SharedOptions, JobOptions):
    """Options of `triglot compare`; `compare` and its workers take them too.

    Attributes:
      num_seeds: independent seeds, vmapped; at least 5 to judge returns.
      devices: the most devices that the seeds are divided among, the same for all libraries.
      envs: further environments; the scores of all are normalised and aggregated.
      backends: the network libraries, at least two; all start from the first one's initial weights.
      arithmetic: native, no canonicalization; leaf_order, gradients are summed in one order;
        canonical, all libraries agree bit for bit.
      ladder: train on every rung, from each library's defaults to canonical arithmetic, to find
        what each cause explains.
      network: custom networks: package.module:object, a dictionary from library to Network or a
        function of obs_spec and action_spec that returns one; or one object per library, each as
        LIBRARY=package.module:object.
      mapping: a JSON file that pairs the parameters of custom networks by name: {library: {its
        name: name in the first library}}.
      margin: largest difference of returns that counts as equal.
      repetitions: processes per library in which costs are measured; 5 give intervals, 0 skips the
        measurement.
      out: a folder for the report; an interrupted comparison there is continued.
      against: the comparison.json of an earlier comparison; report what changed since.
      fail_on: exit with code 1 at this verdict or a worse one: different, or inconclusive.
      open: open the report in a browser.
    """

    num_seeds: Count = 10
    devices: Devices = None
    envs: Annotated[tuple[str, ...], Arg("ENVIRONMENT ...", "none")] = ()
    backends: Annotated[
        tuple[str, ...] | None, Arg("NAME ...", "haiku linen nnx equinox, or those of --network")
    ] = None
    arithmetic: Name = "canonical"
    ladder: bool = False
    network: Annotated[tuple[str, ...], Arg("OBJECT ...", "built in")] = ()
    mapping: Annotated[Path | None, Arg("FILE", "by name, else by shape and order")] = None
    margin: Annotated[
        float | None, Arg("RETURN", "5 percent of the return above a random policy's")
    ] = None
    repetitions: Count = 1
    out: Annotated[Path | None, Arg("FOLDER", "runs/compare-ALGORITHM-ENVIRONMENT-TIME")] = None
    against: Annotated[Path | None, Arg("FILE", "none")] = None
    fail_on: Annotated[str | None, Arg("VERDICT", "never")] = None
    open: bool = False

    @property
    def libraries(self) -> tuple[str, ...]:
        """The chosen backends; empty as long as the default is not filled in."""
        return self.backends or ()


@dataclass(frozen=True, kw_only=True)
class SweepOptions(SharedOptions, JobOptions, MachineOptions):
    """Options of `triglot sweep`.

    Attributes:
      num_seeds: independent seeds of each setting, vmapped; at least 5 for intervals.
      executor: sequential, one batch after the other in this process, with all cores; local, each
        batch in a process pinned to one core; ray, each batch on one core of a Ray cluster.
      seed: random seed of the trainings, and of settings drawn from ranges.
      over: what to vary. Each is NAME=VALUE,VALUE (a list), NAME=LOW..HIGH (a uniform range) or
        NAME=log:LOW..HIGH (a log-uniform range). NAME is an option of the algorithm, or algorithm,
        env, backend, arithmetic or optimizer; it wins over the option of that name. The sizes of
        several layers are joined by slashes: hidden_sizes=64/64,256/256.
      num_settings: draw this many settings at random, instead of training every combination.
      halving: stop the worse settings early, by the mean return of training episodes.
      eta: halving keeps the best 1/eta of the settings, and multiplies their steps by eta.
      batch: trainings (one setting with one seed each) in one compiled program.
      devices: the most devices that the trainings of a batch are divided among.
      backend: the network library: haiku, linen, nnx, equinox, or table.
      arithmetic: native, no canonicalization; leaf_order, gradients are summed in one order;
        canonical, all libraries agree bit for bit.
      network: custom networks, as for `triglot train`.
      out: a folder for the results; an interrupted sweep there is continued.
      checkpoint_seconds: seconds between checkpoints; 0 writes one after Ctrl-C only.
      open: open the report in a browser.
    """

    num_seeds: Count = 5
    executor: Annotated[
        str | None, Arg("NAME", "local with --jobs or several batches, else sequential")
    ] = None
    over: Annotated[
        tuple[str, ...], Arg("NAME=VALUES ...", "none; give at least one", repeated=True)
    ] = ()
    num_settings: Annotated[int | None, Arg("N", "all combinations")] = None
    halving: bool = False
    eta: Count = 2
    batch: Annotated[int | None, Arg("N", "as many as fit into half of the free memory")] = None
    devices: Annotated[int | None, Arg("N", "one per CPU core if there is one batch; else 1")] = (
        None
    )
    backend: Name = "linen"
    arithmetic: Annotated[str | None, Arg("NAME", "canonical; native with a custom network")] = None
    network: Annotated[tuple[str, ...], Arg("OBJECT ...", "built in")] = ()
    out: Annotated[Path | None, Arg("FOLDER", "runs/sweep-ALGORITHM-ENVIRONMENT-TIME")] = None
    checkpoint_seconds: Annotated[float, Arg("SECONDS")] = 60.0
    open: bool = False


@dataclass(frozen=True, kw_only=True)
class RunOptions(MachineOptions):
    """Options of the commands that continue or play a run.

    Attributes:
      run: a folder written by `triglot train`.
      previous: if the last checkpoint is damaged, use the one before it.
      trust: import the custom code that the run names, although you did not begin it here.
    """

    run: RunFolder
    previous: bool = False
    trust: bool = False


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(RunOptions):
    """Options of `triglot resume`.

    Attributes:
      backend: continue on this network library: weights and the optimizer's moments are translated.
      total_steps: environment steps per seed, counted from the run's start; more extend the run.
      decay_updates: updates, counted from the run's start, over which the learning rate of an
        extended run falls to 0; inf for a constant one.
      profile: trace a few updates with JAX's profiler, for Perfetto or TensorBoard.
      devices: divide the training among this many devices.
      shard: what is divided, seeds or envs.
      stop_at: stop when the mean return over seeds reaches this. A run that stopped at its return
        continues with a higher one, or to --total-steps.
    """

    backend: Annotated[str | None, Arg("NAME", "the run's")] = None
    total_steps: Annotated[int | None, Arg("N", "the run's")] = None
    stop_at: Annotated[float | None, Arg("RETURN", "the run's")] = None
    decay_updates: Annotated[float | None, Arg("N", "the run's")] = None
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
      env: play in another environment with the same observations and actions, such as whole Atari
        games after a training on single lives.
      episodes: whole episodes per seed.
      sampled: sample actions instead of taking the argmax.
      seed: random seed of the episodes.
      max_steps: maximum number of steps per episode.
      devices: devices that the seeds are divided among.
    """

    env: Annotated[str | None, Arg("ENVIRONMENT", "the run's")] = None
    episodes: Count = 128
    sampled: bool = False
    seed: Count = 0
    max_steps: Count = 100_000
    devices: Devices = None


@dataclass(frozen=True, kw_only=True)
class ExportOptions(PlayOptions):
    """Options of `triglot export`.

    Attributes:
      format: safetensors, all weights by canonical name; haiku, flax, nnx or equinox, model.py and
        weights.npz for that library; stablehlo, the greedy policy for JAX; onnx, for onnxruntime.
      out: a new folder.
      seed_index: which of the run's seeds is exported, counted from 0.
    """

    format: Name
    out: Annotated[Path, Arg("FOLDER")]
    seed_index: Count = 0


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
    seed_index: Count = 0
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

    runs: Annotated[tuple[Path, ...], Arg("FOLDER ...", positional=True)]
    out: Annotated[Path, Arg("FILE")] = Path("curves.png")
    metric: Name = "episode_return"
    smooth: Annotated[int | None, Arg("N", "chosen to give 80 points")] = None
    labels: Annotated[tuple[str, ...], Arg("TEXT ...", "what differs between the runs")] = ()


@dataclass(frozen=True, kw_only=True)
class DiffOptions(MachineOptions):
    """Options of `triglot diff`.

    Attributes:
      one: a network: package.module:object, a name of an installed package, or zoo:BACKEND.
      other: the network to compare it with.
      env: the environment whose observations both networks read.
      obs_shape: the shape of one float32 input, without the batch.
      inputs: one or several inputs, each DTYPE:SHAPE, such as float32:84,84,4, or
        DTYPE:SHAPE:LOW..HIGH, such as int32:16:0..99; int32: is a scalar. Without bounds, floats
        are drawn from -1 to 1, unsigned integers from their whole range, signed ones from 0 and 1.
      mapping: pairs of parameters, each NAME=NAME: canonical names or prefixes of the first
        network and of the second.
      seed: random seed of weights and inputs.
      json: the file to write the result to; an existing file is replaced.
      algorithm: the algorithm whose networks zoo:BACKEND builds.
    """

    one: Annotated[str, Arg("NETWORK", positional=True)]
    other: Annotated[str, Arg("NETWORK", positional=True)]
    env: Annotated[str | None, Arg("ENVIRONMENT", "none")] = None
    obs_shape: Annotated[tuple[int, ...] | None, Arg("N ...", "none")] = None
    inputs: Annotated[tuple[str, ...], Arg("INPUT ...", "none")] = ()
    mapping: Annotated[tuple[str, ...], Arg("NAME=NAME ...", "by name, or guessed")] = ()
    seed: Count = 0
    json: Annotated[Path | None, Arg("FILE", "none")] = None
    algorithm: Name = "ppo"


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of `triglot check`.

    Attributes:
      part: a name from `triglot list`, a whole suite of environments, or package.module:object.
      kind: algorithm, environment or network, if it cannot be inferred.
      algorithm: the algorithm whose heads a network must have; one network of several is given
        as NAME=PART.
      env: the environment on which an algorithm or a network is checked.
      backends: the network libraries on which an algorithm is checked.
      config: the algorithm's `Config`, or the fields that differ from its defaults.
      hyper: the algorithm's `Hyperparams`, or the fields that differ from its defaults.
    """

    part: Annotated[str, Arg("PART", positional=True)]
    kind: Annotated[str | None, Arg("KIND", "inferred")] = None
    algorithm: Annotated[str | None, Arg("NAME", "none")] = None
    env: Annotated[
        str | None, Arg("ENVIRONMENT", "gymnax:CartPole-v1, or probe:two-step without gymnax")
    ] = None
    backends: Annotated[tuple[str, ...], Arg("NAME ...")] = ("linen",)
    config: Any = field(default_factory=dict)
    hyper: Any = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NewOptions:
    """Options of `triglot new`.

    Attributes:
      kind: algorithm, network or environment.
      name: the name of the folder, the module and, in CamelCase, the class; a Python name such as
        my_agent.
      backend: the library of a network: haiku, linen, nnx or equinox.
      out: the parent of the new folder.
    """

    kind: Annotated[str, Arg("KIND", positional=True)]
    name: Annotated[str, Arg("NAME", positional=True)]
    backend: Annotated[str | None, Arg("NAME", "linen, for a network")] = None
    out: Annotated[Path, Arg("FOLDER", "the current folder")] = Path()
