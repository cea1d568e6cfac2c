"""The options of each command, and their groups in the help.

The options that are defined here write nothing into a run.
"""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from ..compare.options import CompareOptions
from ..diff.porting.options import TranslateOptions
from ..export.options import ExportOptions
from ..runs import options as training
from ..runs.rating.options import RateOptions
from ..runs.registry.arg import Arg, Count, Name
from ..runs.registry.options import MachineOptions
from ..sweep.options import SweepCommandOptions


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
class ListOptions:
    """Options of `triglot list`.

    Attributes:
      suite: list the environments of this suite, which imports its library; or algorithms, by
        family; or presets.
    """

    suite: Annotated[str | None, Arg("SUITE", "everything that can be listed", True)] = None


@dataclass(frozen=True, kw_only=True)
class DiffOptions(MachineOptions):
    """Options of `triglot diff`.

    Attributes:
      one: a network: package.module:object, a name registered by an installed package, or
        zoo:BACKEND for a built-in network; or the recording of one, a .safetensors file that
        `python -m triglot.record` wrote. Or a loss, a target or an update step: a function in JAX
        or PyTorch, a pair (init, function), or algorithm:NAME for the loss of a built-in algorithm,
        such as algorithm:ppo, algorithm:sac.actor or algorithm:ppo,clip_epsilon=0.1.
      other: the network or loss to compare it with.
      env: the environment whose observations are the input of both networks.
      obs_shape: the shape of one float32 input, without the batch.
      inputs: one or several inputs, each DTYPE:SHAPE, such as float32:84,84,4, or
        DTYPE:SHAPE:LOW..HIGH, such as int32:16:0..99; int32: is a scalar. Without bounds, floats
        are drawn from -1 to 1, unsigned integers from their whole range, signed ones from 0 and 1.
        For a loss, whole arrays by name: NAME=DTYPE:SHAPE or NAME=KIND:SHAPE, such as
        obs=float32:32,4 action:32:0..3 old_value=value:32 done=flag:32 gamma=0.99, or a file .npz.
        Kinds: action, advantage, discount, distribution, flag, gradient, log_prob, logits, param
        (learned), probability, return, reward, square, step, value, weight.
      mapping: pairs of parameters or modules, each NAME=NAME: of the first network and of the
        second, as their libraries or the report spell them, or the ends of such names.
      checkpoint: trained weights. One file has the weights of the first network, which both get;
        two files have the weights of each network, which are compared too. With a recording, the
        file has the weights of the port.
      trust: read a checkpoint that is a pickle, which may run code.
      seed: random seed of weights and inputs.
      html: write an HTML page with the modules of both networks side by side; an existing file is
        replaced.
      json: write the result to this file; an existing file is replaced.
      quick: compare outputs only, not gradients, training steps and initializers.
      thorough: measure everything also for large networks: canonical arithmetic, 100 training steps
        and initializers.
      max_rounding: largest rounding difference of equivalent networks, relative to the largest
        output or gradient, in the dtype in which they compute.
      algorithm: the algorithm whose built-in networks zoo:BACKEND stands for.
      watch: compare again after each edit of a file that a module of the networks is in, or of a
        file that it imports, until Ctrl-C. Files of installed packages are not watched.
    """

    one: Annotated[str, Arg("NETWORK", positional=True)]
    other: Annotated[str, Arg("NETWORK", positional=True)]
    env: Annotated[str | None, Arg("ENVIRONMENT", "none")] = None
    obs_shape: Annotated[tuple[int, ...] | None, Arg("N ...", "none")] = None
    inputs: Annotated[tuple[str, ...], Arg("INPUT ...", "none")] = ()
    mapping: Annotated[tuple[str, ...], Arg("NAME=NAME ...", "by name, or guessed")] = ()
    checkpoint: Annotated[tuple[Path, ...], Arg("FILE ...", "none: initial weights")] = ()
    trust: bool = False
    seed: Count = 0
    html: Annotated[Path | None, Arg("FILE", "none")] = None
    json: Annotated[Path | None, Arg("FILE", "none")] = None
    quick: bool = False
    thorough: bool = False
    max_rounding: float = 1e-3
    algorithm: Name = "ppo"
    watch: bool = False


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
      config: static configuration: the algorithm's `Config`, or a mapping of the fields to change.
      hyper: hyperparameters (traced; sweepable without recompiling): the algorithm's
        `Hyperparams`, or a mapping of the fields to change.
    """

    part: Annotated[str, Arg("PART", positional=True)]
    kind: Annotated[str | None, Arg("KIND", "inferred")] = None
    algorithm: Annotated[str | None, Arg("NAME", "none")] = None
    env: Annotated[
        str | None, Arg("ENVIRONMENT", "the first that fits, gymnax:CartPole-v1 before others")
    ] = None
    backends: Annotated[tuple[str, ...], Arg("NAME ...")] = ("linen",)
    config: Any = field(default_factory=dict)
    hyper: Any = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NewOptions:
    """Options of `triglot new`.

    Attributes:
      kind: algorithm, network, environment or loss.
      name: the name of the folder, the module and, in CamelCase, the class; a Python name such as
        my_agent.
      backend: the library of a network: haiku, linen, nnx, equinox, keras, torch or jax; of a loss:
        jax or torch.
      like: the built-in algorithm whose source is copied, in place of a template; for a loss, the
        algorithm whose loss it is compared with.
      out: the parent of the new folder.
    """

    kind: Annotated[str, Arg("KIND", positional=True)]
    name: Annotated[str, Arg("NAME", positional=True)]
    backend: Annotated[str | None, Arg("NAME", "linen for a network, jax for a loss")] = None
    like: Annotated[str | None, Arg("ALGORITHM", "a template; ppo for a loss")] = None
    out: Annotated[Path, Arg("FOLDER", "the current folder")] = Path()


OPTIONS: dict[str, type] = {
    "train": training.TrainOptions,
    "resume": training.ResumeOptions,
    "evaluate": training.EvaluateOptions,
    "render": training.RenderOptions,
    "export": ExportOptions,
    "runs": training.RunsOptions,
    "watch": training.WatchOptions,
    "curves": training.CurvesOptions,
    "rate": RateOptions,
    "compare": CompareOptions,
    "sweep": SweepCommandOptions,
    "diff": DiffOptions,
    "translate": TranslateOptions,
    "check": CheckOptions,
    "new": NewOptions,
    "list": ListOptions,
    "completion": CompletionOptions,
    "version": NoOptions,
    "help": NoOptions,
}

NESTED = ("config", "hyper")  # fields that hold the options of an algorithm
MANY = 10  # options of a command; fewer are one group


class Group(NamedTuple):
    """What the help says of a group, and the options in it."""

    description: str
    names: tuple[str, ...]


# By the first word of the group's title.
GROUPS = {
    "network": Group(
        "The networks and their library.",
        ("backend", "backends", "arithmetic", "network", "mapping"),
    ),
    "evaluation": Group(
        "How the agent is evaluated, and when the training stops.",
        ("eval_episodes", "eval_every", "stop_at", "margin"),
    ),
    "output": Group(
        "What to write, where, and how often.",
        ("out", "checkpoint_seconds", "keep_every", "metrics_every", "log", "wandb", "print_config",
         "open"),
    ),
    "population": Group(
        "Population-based training: the worst seeds copy the best ones and perturb them.",
        ("population", "exploit_every", "perturb", "exploit_fraction", "selection"),
    ),
    "start": Group(
        "Start from the weights of another run.",
        ("init_from", "init_names", "init_seed_index"),
    ),
    "machine": Group(
        "Devices, processes, caches and clusters.",
        ("devices", "shard", "executor", "jobs", "address", "compilation_cache",
         "no_compilation_cache"),
    ),
    "debugging": Group("Find errors and measure speed.", ("debug", "profile")),
}  # fmt: skip


def groups_of(options: type) -> dict[str, list[str]]:
    """List the options of a command that are in groups: their names by the group's.

    Args:
      options: a class of `OPTIONS`.
    """
    names = [field.name for field in fields(options)]
    if len(names) <= MANY:
        return {}
    titled = {
        title: [name for name in group.names if name in names] for title, group in GROUPS.items()
    }
    return {title: inside for title, inside in titled.items() if inside}
