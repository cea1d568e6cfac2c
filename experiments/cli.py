"""The command line, `triglot`; nothing heavy is imported before it is needed."""

import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import TriglotError, unknown

if TYPE_CHECKING:
    from .options import TrainOptions

HELP = """\
usage: triglot [-h] COMMAND ...

One reinforcement-learning agent, fluent in every JAX network library.

commands:
  train      train an algorithm on one library
  resume     go on with a training that was interrupted or killed
  evaluate   play whole episodes with a trained agent
  render     draw an episode of a trained agent
  curves     draw the learning curves of several trainings
  compare    train it on several, from the same weights, and report what differed
  check      check a part of your own, or any other, before it trains
  new        write a part of your own to start from
  list       list algorithms, backends and environments, and what is installed
  version    show the versions of everything that matters

examples:
  triglot train ppo gymnax:CartPole-v1 --backend equinox --num-seeds 4 --out runs/first
  triglot train ppo gymnax:CartPole-v1 --learning-rate 1e-3 --num-envs 16
  triglot resume runs/first
  triglot evaluate runs/first
  triglot compare ppo gymnax:CartPole-v1 --backends haiku equinox --total-steps 100000
  triglot new algorithm my_agent
  triglot check my_file:MyAgent --env gymnax:CartPole-v1
  triglot list gymnax

`triglot COMMAND --help` explains a command, `triglot train ppo --help` with PPO's own options.
"""

TRAIN_HELP = """\
Train an algorithm in an environment, on networks of one library, several seeds in one program.

The folder holds: config.json (what it takes to do the same again), metrics.jsonl (a line for each
update, a value for each seed), summary.json, learning_curve.png and checkpoints, from which
`triglot resume FOLDER` goes on.

triglot train ppo gymnax:CartPole-v1 --backend haiku --num-seeds 10 --out runs/haiku

triglot train ppo gridworld:8x8 --backend table --rollout-length 32

triglot train my_file:MyAgent my_file:MyEnvironment --network my_file:my_network

triglot train ppo probe:two-step --total-steps 64 --rollout-length 8 --debug nans no-jit
"""

RESUME_HELP = """\
Go on with a training from its last checkpoint, as if it had never stopped.

The final parameters are those of a training that was never interrupted, bit for bit, on the same
machine with the same versions; only environments of the host, such as Gymnasium's, cannot be saved
and begin new episodes. One that was killed before its first checkpoint begins again.

triglot resume runs/first
"""

EVALUATE_HELP = """\
Play whole episodes with the agent of a training's last checkpoint, each seed's with its own.

Shows the mean return over the seeds with its 95% interval (Student's t; of one seed, over its
episodes), the lengths, and how many episodes did not end within the steps allowed. Every episode is
in evaluation.json in the training's folder, which the next evaluation replaces.

triglot evaluate runs/first

triglot evaluate runs/first --sampled --episodes 1000 --seed 1
"""

RENDER_HELP = """\
Draw an episode of a trained agent: an animated GIF, or for brax a page for a browser.

gridworld, jumanji, brax, and of gymnax the MinAtar games, Catch, Pong, the mazes and PointRobot are
drawn with what is installed; so is what Gymnasium draws as `rgb_array`. CartPole and the other
classic control tasks of both need pygame: pip install 'triglot[render]'. An environment of your own
is drawn if it has a method draw.

triglot render runs/first

triglot render runs/first --episodes 3 --seed-index 1 --sampled --out three.gif
"""

CURVES_HELP = """\
Draw the learning curves of several trainings in one picture: the mean over seeds, with a band.

A training that still runs is drawn as far as it is.

triglot curves runs/haiku runs/equinox --out curves.png

triglot curves runs/* --metric loss --band range --labels small large
"""

COMPARE_HELP = """\
Train an algorithm on several libraries from the same weights and keys, and report what differed.

Each library trains in a process of its own. The folder holds: comparison.json, curves.png and
report.html, which needs nothing else.

triglot compare ppo gymnax:CartPole-v1 --backends haiku linen nnx equinox --num-seeds 4

triglot compare ppo gymnax:CartPole-v1 --backends linen equinox --arithmetic native
"""


CHECK_HELP = """\
Check a component: an algorithm, an environment, a network, or a whole suite of environments.

The first line is the result. Each failure shows what was found, why it matters and how to fix it.
The exit code is 0 if all checks passed, 1 if one failed, 2 if a component could not be checked.

triglot check my_file:my_network --env gymnax:CartPole-v1

triglot check my_file:my_network --algorithm dqn

triglot check actor=my_file:my_actor --algorithm sac --env gymnax:Pendulum-v1

triglot check my_file:MyAgent --backends haiku linen nnx equinox

triglot check my_file:MyEnvironment

triglot check gymnax
"""

NEW_HELP = """\
Write a folder with a part of your own to start from, which passes its own check at once.

It holds the part, its test, a pyproject.toml with which `pip install -e` makes it appear in
`triglot list`, and a README. Kinds: algorithm, environment, network.

triglot new algorithm my_agent

triglot new network my_network --backend equinox
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
      argv: its arguments; None for those of the process.

    Returns:
      The exit code: 0; 1 where a check failed; 2 after a mistake in what was given, told in one
      line; 130 after Ctrl-C.
    """
    started = time.perf_counter()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(HELP, end="")
            return 0
        if arguments[0] not in COMMANDS:
            raise unknown("command", arguments[0], COMMANDS)
        return COMMANDS[arguments[0]](arguments, started)
    except TriglotError as error:
        print(f"triglot: error: {error}", file=sys.stderr)
        return 2
    except SystemExit as stop:  # `--help` of a command ends so
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt:
        print("triglot: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _list(arguments: list[str], started: float) -> int:
    from .authoring import list as listing
    from .options import ListOptions, parse

    help_text = "List algorithms, backends and environments, and what is installed."
    options = parse(ListOptions, arguments[1:], prog="triglot list", description=help_text)
    print(listing.suite(options.suite) if options.suite else listing.everything())
    return 0


def _version(arguments: list[str], started: float) -> int:
    from .options import Nothing, parse
    from .version import device, versions

    help_text = "Show the versions of everything that matters to a result, and the device."
    parse(Nothing, arguments[1:], prog="triglot version", description=help_text)
    shown = {name: number or "not installed" for name, number in versions().items()}
    for name, value in (shown | {"device": device()}).items():
        print(f"{name:<18} {value}")
    return 0


def _train(arguments: list[str], started: float) -> int:
    from .options import TrainOptions

    options = _parse_with_algorithm(TrainOptions, arguments, TRAIN_HELP)
    _keep_compiled_programs(options)
    from .runs.train import train

    return train(options, started=started, arguments=arguments)


def _resume(arguments: list[str], started: float) -> int:
    from .options import ResumeCommand, parse

    chosen = parse(ResumeCommand, arguments[1:], prog="triglot resume", description=RESUME_HELP)
    options = _begun(chosen.run)
    from .runs.train import resume

    return resume(options, chosen.run, started=started, previous=chosen.previous)


def _evaluate(arguments: list[str], started: float) -> int:
    from .options import EvaluateCommand, parse

    prog = "triglot evaluate"
    chosen = parse(EvaluateCommand, arguments[1:], prog=prog, description=EVALUATE_HELP)
    options = _begun(chosen.run)
    from .runs.evaluate import evaluate_run

    return evaluate_run(chosen, options)


def _render(arguments: list[str], started: float) -> int:
    from .options import RenderCommand, parse

    chosen = parse(RenderCommand, arguments[1:], prog="triglot render", description=RENDER_HELP)
    options = _begun(chosen.run)
    from .runs.render import render

    return render(chosen, options)


def _curves(arguments: list[str], started: float) -> int:
    from .options import CurvesCommand, parse

    chosen = parse(CurvesCommand, arguments[1:], prog="triglot curves", description=CURVES_HELP)
    from .runs.curves import draw_curves

    return draw_curves(chosen)


def _compare(arguments: list[str], started: float) -> int:
    from .options import CompareCommand
    from .registry.components import overrides_of

    options = _parse_with_algorithm(CompareCommand, arguments, COMPARE_HELP)
    from .comparison.compare import CompareOptions, compare
    from .runs.plan import default_folder

    chosen: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(options)}
    chosen["out"] = options.out or default_folder("compare", options.algorithm, options.env)
    chosen["config"] = overrides_of(options.config)
    chosen["hyper"] = overrides_of(options.hyper)
    compare(CompareOptions(**chosen))
    return 0


def _check(arguments: list[str], started: float) -> int:
    from .options import CheckCommand, Nothing, parse

    prog, given = "triglot check", arguments[1:]
    command: Any = CheckCommand
    if given and given[0] in ("-h", "--help"):
        description = f"{CHECK_HELP}\nAn algorithm has options of its own: {prog} ppo --help\n"
        parse(command[Nothing, Nothing], ["--help"], prog=prog, description=description)
    if not given or given[0].startswith("-"):
        raise TriglotError(f"first name what to check: {prog} my_file:MyAgent")
    from .authoring.check import Choices, check
    from .registry.parts import find_part

    # The part is found before its options are read, since an algorithm brings some of them.
    part = find_part(given[0], _option(given, "--kind"), _option(given, "--algorithm"))
    brings = part.algorithm
    whole = command[(brings.Config, brings.Hyperparams) if brings else (Nothing, Nothing)]
    options = parse(whole, given, prog=prog, description=CHECK_HELP)
    from .registry.components import overrides_of

    return check(
        part,
        Choices(
            env=options.env,
            backends=options.backends,
            config=overrides_of(options.config),
            hyper=overrides_of(options.hyper),
        ),
    )


def _option(given: list[str], name: str) -> str | None:
    """Read the value of an option before all options are parsed."""
    spaced = (second for first, second in itertools.pairwise(given) if first == name)
    joined = (word.partition("=")[2] for word in given if word.startswith(f"{name}="))
    return next(itertools.chain(spaced, joined), None)


def _new(arguments: list[str], started: float) -> int:
    from .authoring.new import write
    from .options import NewCommand, parse

    options = parse(NewCommand, arguments[1:], prog="triglot new", description=NEW_HELP)
    print(write(options.kind, options.name, backend=options.backend, out=options.out))
    return 0


COMMANDS: Mapping[str, Callable[[list[str], float], int]] = {
    "train": _train,
    "resume": _resume,
    "evaluate": _evaluate,
    "render": _render,
    "curves": _curves,
    "compare": _compare,
    "check": _check,
    "new": _new,
    "list": _list,
    "version": _version,
}


def _parse_with_algorithm(options: Any, arguments: list[str], description: str) -> Any:
    """Parse the options of a command whose first argument, the algorithm, brings some of them."""
    from .options import Nothing, parse
    from .registry.components import find_algorithm, names

    prog = f"triglot {arguments[0]}"
    given = arguments[1:]
    if given and given[0] in ("-h", "--help"):
        there = ", ".join(names("algorithm"))
        description += f"\nThe algorithms ({there}) have options of their own: {prog} ppo --help\n"
        parse(options[Nothing, Nothing], ["--help"], prog=prog, description=description)
    asks_for_help = not {"-h", "--help"}.isdisjoint(given)
    if not asks_for_help and (len(given) < 2 or any(word.startswith("-") for word in given[:2])):
        raise TriglotError(
            f"first name an algorithm and an environment: {prog} ppo gymnax:CartPole-v1"
        )
    algorithm = find_algorithm(given[0])
    whole = options[algorithm.Config, algorithm.Hyperparams]
    return parse(whole, given, prog=prog, description=description)


def begun(folder: Path) -> "TrainOptions":
    """Read with what options the training in a folder was begun.

    Raises:
      TriglotError: if it is no training's folder.
    """
    import shlex

    from .options import TrainOptions
    from .runs.journal import read_config

    command = shlex.split(read_config(folder)["command"])
    return _parse_with_algorithm(TrainOptions, command[1:], TRAIN_HELP)


def _begun(folder: Path) -> "TrainOptions":
    options = begun(folder)
    _keep_compiled_programs(options)
    return options


def _keep_compiled_programs(options: "TrainOptions") -> None:
    """Let JAX keep what it compiles for the next run, unless told not to."""
    import jax

    jax.config.update("jax_enable_compilation_cache", not options.no_compilation_cache)
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = options.compilation_cache or caches / "triglot" / "jax"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
