"""The options of a sweep, from Python and by `triglot sweep`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..runs.jobs.options import JobOptions
from ..runs.options import LogOptions
from ..runs.registry.arg import Arg, Count, Name
from ..runs.registry.options import LengthOptions, MachineOptions, SharedOptions


@dataclass(frozen=True, kw_only=True)
class SweepOptions(LengthOptions, JobOptions, LogOptions):
    """Options of a sweep, which `triglot.sweep.sweep` and `triglot sweep` share.

    Attributes:
      num_seeds: independent seeds of each setting, vmapped; at least 5 for intervals.
      seed: random seed of the trainings, and of settings drawn from ranges.
      executor: sequential, one batch after another in this process, with all cores; local, each
        batch in a process pinned to one core; ray, each batch on one core of a Ray cluster.
      num_settings: train this many settings, drawn at random or proposed by --search, instead of
        every combination.
      search: grid, every combination; random, settings drawn at random; or Optuna, which draws the
        first round at random and proposes the next ones from the results so far: tpe, for ranges
        and lists; cma-es, for ranges; gp, a Gaussian process, for ranges and lists, with PyTorch.
      search_batch: number of settings in each round of tpe, cma-es and gp, which train together.
      confirm: train the best setting again with this many fresh seeds (those of the next --seed),
        since its return on the seeds that selected it is biased upwards.
      halving: successive halving: stop the worse settings early, by the mean return of training
        episodes.
      eta: halving keeps the best 1/eta of the settings, and multiplies their steps by eta.
      batch: trainings (one setting with one seed each) in one compiled program.
      devices: maximum number of devices to divide the trainings of a batch among.
      backend: the network library: haiku, linen, nnx, equinox, keras, torch, jax (plain functions)
        or table (tabular algorithms).
      arithmetic: native, the operations of the library; leaf_order, gradients are summed in the
        same order in all libraries; canonical, all libraries are bitwise identical.
      out: a folder for the results; an interrupted sweep there is continued.
      checkpoint_seconds: seconds between checkpoints; 0 writes one after Ctrl-C only.
      log: loggers that get the learning curve and the greedy returns of each setting when the
        sweep ends, one run for each setting: tensorboard, wandb (Weights & Biases), or both.
      wandb: for --log wandb, arguments of wandb.init by their names: project, entity, group (by
        default the sweep's folder), resume (allow, never, must or auto).
    """

    num_seeds: Count = 5
    executor: Annotated[
        str | None, Arg("NAME", "local with --jobs or several batches, else sequential")
    ] = None
    num_settings: Annotated[int | None, Arg("N", "all combinations")] = None
    search: Annotated[str | None, Arg("NAME", "grid; random with --num-settings")] = None
    search_batch: Annotated[int | None, Arg("N", "an eighth of --num-settings, at least 4")] = None
    confirm: Annotated[int | None, Arg("N", "none")] = None
    halving: bool = False
    eta: Count = 2
    batch: Annotated[int | None, Arg("N", "as many as fit into half of the free memory")] = None
    devices: Annotated[int | None, Arg("N", "one per CPU core if there is one batch; else 1")] = (
        None
    )
    backend: Name = "linen"
    arithmetic: Annotated[str | None, Arg("NAME", "canonical; native with a custom network")] = None
    out: Annotated[Path | None, Arg("FOLDER", "runs/sweep-ALGORITHM-ENVIRONMENT-TIME")] = None
    checkpoint_seconds: Annotated[float, Arg("SECONDS")] = 60.0


@dataclass(frozen=True, kw_only=True)
class SweepCommandOptions(SweepOptions, SharedOptions, MachineOptions):
    """Options of `triglot sweep`.

    Attributes:
      over: what to vary: NAME=VALUE,VALUE (a list), NAME=LOW..HIGH (a uniform range) or
        NAME=log:LOW..HIGH (a log-uniform range). NAME is an option of the algorithm, or algorithm,
        env, backend, arithmetic or optimizer; it overrides the option of that name. The sizes of
        several layers are joined by slashes: hidden_sizes=64/64,256/256.
      network: custom networks, as for `triglot train`.
      open: open the report in a browser.
    """

    over: Annotated[
        tuple[str, ...], Arg("NAME=VALUES ...", "none; give at least one", repeated=True)
    ] = ()
    network: Annotated[tuple[str, ...], Arg("OBJECT ...", "built in")] = ()
    open: bool = False
