"""The command line, `triglot`. Heavy libraries are imported only by the commands that need them."""

import inspect
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from .. import __version__
from ..core.errors import TriglotError, check_known
from ..core.records import AnyOptions
from ..runs import devices
from ..runs.compilation_cache import configure
from ..runs.options import RunOptions, TrainOptions
from ..runs.registry.options import MachineOptions
from ..runs.storage.config_files import toml_of
from ..shared.terminal.progress import phase
from ..shared.terminal.streams import checked_stdout, forgiving_stderr
from ..shared.terminal.wrapping import wrapped
from .arguments import check_words, check_writable
from .failures import print_error, reason_of
from .options import OPTIONS
from .parsing import CommandLine, HelpAsked
from .presets import preset_in_file, preset_settings
from .usage import USAGE


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
      argv: its arguments; None for those of the process.

    Returns:
      The exit code: 0; 1 if a check failed, a training diverged, two networks are different, or the
      reader of a pipe ended; 2 after a user error, which is printed in one line; 130 after Ctrl-C.
    """
    started = time.perf_counter()
    arguments = list(sys.argv[1:] if argv is None else argv)
    with forgiving_stderr():
        try:
            with checked_stdout():
                return _run(arguments, started)
        except KeyboardInterrupt as stop:
            print("triglot: interrupted", file=sys.stderr)
            return 128 + getattr(stop, "number", signal.SIGINT)
        except BrokenPipeError:  # the reader, such as `head`, closed the pipe
            return 1
        except (Exception, SystemExit) as error:
            reason = reason_of(error)
            if reason is None:
                raise
            print_error(reason)
            return 2


def _run(arguments: list[str], started: float) -> int:
    if arguments[:1] == ["help"]:  # `triglot help train` is `triglot train --help`
        arguments = [*arguments[1:2], "--help"]
    if arguments[:1] == ["--version"]:
        print(f"triglot {__version__}")
        return 0
    if not arguments or arguments[0] in ("-h", "--help"):
        print(wrapped(USAGE.rstrip()))
        return 0
    check_known("command", arguments[0], COMMANDS)
    check_words(arguments)
    devices.check_count_variable()
    try:
        return COMMANDS[arguments[0]](arguments, started)
    except HelpAsked as text:
        print(text, end="")
        return 0


def _train(arguments: list[str], started: float) -> int:
    """Train an algorithm in an environment, on networks of one library, with all seeds in one
    program.

    The run directory contains config.json (all options), metrics.jsonl (one line per update, one
    value per seed), summary.json, learning_curve.png and checkpoints, from which `triglot resume
    FOLDER` continues.
    """
    with phase("importing"):
        options = _parse_with_algorithm(arguments)
    if options.print_config:
        from ..runs.plan import with_defaults
        from ..runs.registry.algorithms import find_algorithm

        algorithm = find_algorithm(options.algorithm)
        print(toml_of(with_defaults(options), algorithm), end="")
        return 0
    _set_compilation_cache(options)
    devices.start(options)
    with phase("importing"):
        from ..runs.train import train

    return train(options, started=started, arguments=arguments)


def _resume(arguments: list[str], started: float) -> int:
    """Continue a training from its last checkpoint.

    The final parameters are bitwise identical to those of an uninterrupted training, on the same
    machine with the same versions. There is one exception: the state of environments that are
    stepped in Python, such as Gymnasium's, cannot be saved, so these begin new episodes. A run that
    was stopped before its first checkpoint starts again from the beginning. Damaged metrics, other
    versions and another device are reported.

    With --backend, the run continues in another network library; in canonical arithmetic, the
    default, it computes the same bits. --total-steps extends the run. --devices changes the number
    of devices, and results then agree up to rounding. config.json lists the changes.
    """
    options = _parse(arguments)
    with phase("importing"):
        run_options = _options_of_run(options)
        from ..runs.resume.changing import changed
        from ..runs.train import resume

    run_options = replace(run_options, profile=options.profile)
    devices.start(changed(run_options, options))
    return resume(options, run_options, started=started)


def _evaluate(arguments: list[str], started: float) -> int:
    """Play whole episodes with the agent of each seed, from the run's last checkpoint.

    It shows the mean return over seeds with its 95% confidence interval (Student's t; below 5 seeds
    the lowest and highest seed; for one seed the interval over episodes), the episode lengths, and
    the number of episodes cut at --max-steps. Every episode is written to evaluation.json in the
    run directory, which the next evaluation overwrites.
    """
    options = _parse(arguments)
    with phase("importing"):
        run_options = _options_of_run(options)
        devices.start_for(options.devices, run_options.num_seeds)
        from ..runs.evaluate import evaluate_run

    return evaluate_run(options, run_options)


def _render(arguments: list[str], started: float) -> int:
    """Render an episode of a trained agent: an animated GIF, or an HTML page for brax.

    No additional package is needed for gridworld, jumanji, brax, gymnax's MinAtar games, Catch,
    Pong, mazes and PointRobot, and for Gymnasium environments that support `rgb_array`. CartPole
    and the other classic control tasks of gymnax and Gymnasium need pygame: pip
    install 'triglot[render]'. A custom environment needs a method draw.
    """
    options = _parse(arguments)
    with phase("importing"):
        run_options = _options_of_run(options)
        from ..runs.render import render

    return render(options, run_options)


def _export(arguments: list[str], started: float) -> int:
    """Write the weights or the policy of one seed, for use without triglot.

    safetensors: all weights by canonical name. haiku, flax, nnx, equinox, keras: weights.npz, and
    model.py, which builds plain modules of that library, whichever the run used. torch: the same
    for PyTorch, with a state_dict for each network in weights.safetensors. stablehlo, onnx: the
    greedy policy as one file, and load.py, which needs only JAX or onnxruntime; the file includes
    the normalization of observations and the scaling of actions. To write ONNX: pip install
    'triglot[onnx]'.
    """
    options = _parse(arguments)
    with phase("importing"):
        run_options = _options_of_run(options)
        from ..export.written import export

    return export(options, run_options)


def _runs(arguments: list[str], started: float) -> int:
    """List the runs in a folder: state, age, return, steps and what was trained.

    A run is running, finished, stopped (at --stop-at), interrupted (by Ctrl-C or a signal),
    diverged, killed, or damaged (`triglot watch RUN` says what is damaged).
    """
    options = _parse(arguments)
    from ..runs.monitoring.listing import list_runs

    print(list_runs(options))
    return 0


def _watch(arguments: list[str], started: float) -> int:
    """Show the curve, the speed and the state of a run that another program trains.

    It ends when the run ends, or with Ctrl-C. It does not lock the folder, and writes into it only
    with --log. If the output is not a terminal, it describes the run once.
    """
    options = _parse(arguments)
    from ..runs.monitoring.watch import watch

    return watch(options)


def _curves(arguments: list[str], started: float) -> int:
    """Plot the learning curves of several runs in one environment.

    The plot shows the mean over seeds and its 95% confidence interval; below 5 seeds, a thin line
    for each seed. A run that has not finished is plotted up to its last update.
    """
    options = _parse(arguments)
    from ..runs.curves import draw_curves

    return draw_curves(options)


def _rate(arguments: list[str], started: float) -> int:
    """Play the checkpoints of runs in a two-player game against each other, and rate them.

    The players are the last checkpoint of each run, those that --keep-every kept, and a random
    player, whose rating is 0. Each pair plays --games games, at random seats. Ratings are Elo
    points by maximum likelihood (Bradley and Terry 1952), with 95% bootstrap intervals.

    Writes ratings.json and ratings.png, the rating over environment steps, to the first run's
    folder.
    """
    options = _parse(arguments)
    _set_compilation_cache(options)
    with phase("importing"):
        from ..runs.rating.rate import rate_runs

    return rate_runs(options)


def _compare(arguments: list[str], started: float) -> int:
    """Train an algorithm with several network libraries from the same weights and keys, and report
    all differences.

    Each library trains in a separate process. The verdict is identical, equivalent, inconclusive or
    different. The report names the first update, parameter and operation that differ, and the
    likely cause. The folder contains comparison.json, curves.png and .svg, figures/*.png and .svg,
    tables.md and tables/*.csv, and report.html, a self-contained page. The same command continues
    an interrupted comparison; --ladder and --repetitions extend a finished one.
    """
    from ..runs.registry.overrides import overrides_of

    with phase("importing"):
        options = _parse_with_algorithm(arguments)
        devices.start_for(options.devices, options.num_seeds)
        from ..compare.compare import compare, exit_code

    config, hyper = overrides_of(options.config), overrides_of(options.hyper)
    return exit_code(options, compare(replace(options, config=config, hyper=hyper)))


def _sweep(arguments: list[str], started: float) -> int:
    """Train many settings of an algorithm, with several seeds each, and rank them.

    Settings that differ only in hyperparameters are trained in one compiled program, in batches
    that fit into memory; other values (hidden_sizes, num_envs, algorithm, env, backend, optimizer)
    need separate programs. The sweep trains every combination of the values, or --num-settings of
    them, drawn at random. --halving stops the worse settings early.

    The folder contains results.csv (one row per setting and seed), ranking.csv, sweep.json,
    sweep.png and .svg, report.html, a self-contained page, and best.toml, the best setting.
    The same command with the same --out continues an interrupted sweep.
    """
    with phase("importing"):
        options = _parse_with_algorithm(arguments)
        _set_compilation_cache(options)
        from ..sweep.jobs import recorded_devices
        from ..sweep.run import sweep

    devices.start_for(options.devices or recorded_devices(options.out))
    return sweep(options)[0]


def _diff(arguments: list[str], started: float) -> int:
    """Compare two networks with the same weights, without training: where they differ, and why.

    The verdict is identical (all bits are equal), equivalent (equal up to rounding) or different.
    The comparison covers parameters, outputs in training and evaluation, gradients, and 1 and 100
    steps of Adam. If outputs differ, it reports the first operation that differs and the likely
    causes. Initializers are reported separately and do not affect the verdict.

    A network may be an untransformed Haiku function, a Linen module, an NNX or Equinox class or
    module, a Keras model or its class, a function of a key or of rngs that returns a module, or a
    triglot Network.

    With --watch, they are compared again after each edit of their files, until Ctrl-C.

    The exit code is 0 if the networks are identical or equivalent, 1 if they are different, and 2
    if they cannot be compared. With --watch it is 0.
    """
    options = _parse(arguments)
    for name, file in (("--json", options.json), ("--html", options.html)):
        if file is not None:
            check_writable(name, file.parent)
    _set_compilation_cache(options)
    from .difference import diff

    return diff(options)


def _translate(arguments: list[str], started: float) -> int:
    """Convert a checkpoint of one library into the weights of another library's network.

    Layouts follow the layers of each library; running statistics are converted too. Layers are
    paired by name, as --mapping states, or by shape and order if only one such pairing exists; the
    mapping is printed. With --source, the network that was saved, the outputs of both networks are
    compared, and a difference is explained as in `triglot diff`.

    The exit code is 0 if the functions agree or were not compared, 1 if they differ, and 2 if the
    weights cannot be converted.
    """
    options = _parse(arguments)
    if options.out is not None:
        check_writable("--out", options.out.parent)
    _set_compilation_cache(options)
    with phase("importing"):
        from ..diff.porting.translate import port
        from .difference import check_one_way, inputs_of, mapping_of

    check_one_way(options)
    return port(options, *inputs_of(options), mapping_of(options.mapping))


def _check(arguments: list[str], started: float) -> int:
    """Check a component: an algorithm, an environment, a network, or a whole suite of environments.

    The first line is the result. Each failure is reported with its cause, why it matters and how to
    fix it. The exit code is 0 if all checks passed, 1 if a check failed, and 2 if the component
    could not be checked.
    """
    line = _command_line(arguments)
    if line.asks_for_help and not line.leading:
        raise HelpAsked(line.help("An algorithm adds options: triglot check ppo --help"))
    part = line.text("part")
    if not part:
        raise TriglotError("give the component to check first: triglot check my_file:MyAgent")
    from ..runs.registry.components import find_component
    from ..runs.registry.overrides import overrides_of
    from .check import check

    # The component is found before its options are parsed, since an algorithm adds options.
    component = find_component(part, line.text("kind") or None, line.text("algorithm") or None)
    line.add_algorithm(component.algorithm)
    options = line.options()
    config, hyper = overrides_of(options.config), overrides_of(options.hyper)
    return check(component, replace(options, config=config, hyper=hyper))


def _new(arguments: list[str], started: float) -> int:
    """Create a folder with a custom component that passes its check: from a template, or, with
    --like, a copy of a built-in algorithm under a new name.

    It contains the component, its test, a README and a pyproject.toml, so that `pip install -e`
    adds the component to `triglot list`. Kinds: algorithm, environment, network, loss.
    """
    from .new import write

    print(write(_parse(arguments)))
    return 0


def _list(arguments: list[str], started: float) -> int:
    """List algorithms, backends, environments and presets, and what is installed."""
    from . import list as listing

    options = _parse(arguments)
    print(wrapped(listing.suite(options.suite) if options.suite else listing.everything()))
    return 0


def _completion(arguments: list[str], started: float) -> int:
    """Write the script by which a shell completes commands, options and values.

    For bash, put this line in ~/.bashrc: source <(triglot completion bash). For zsh, put this line
    in ~/.zshrc: source <(triglot completion zsh). To load it faster, save the output in a file and
    source that; write it again after an update of triglot.
    """
    options = _parse(arguments)
    from .completion import completion_script

    print(completion_script(options.shell), end="")
    return 0


def _version(arguments: list[str], started: float) -> int:
    """Show the versions of triglot and the libraries that influence results."""
    from ..shared.machine.version import device, versions

    _parse(arguments)
    shown = {name: number or "not installed" for name, number in versions().items()}
    for name, value in (shown | {"device": device()}).items():
        print(f"{name:<18} {value}")
    return 0


_COMMANDS = (
    _train, _resume, _evaluate, _render, _export, _runs, _watch, _curves, _rate, _compare, _sweep,
    _diff, _translate, _check, _new, _list, _completion, _version,
)  # fmt: skip
COMMANDS = {command.__name__.removeprefix("_"): command for command in _COMMANDS}


def _parse(arguments: list[str]) -> AnyOptions:
    """Parse the options of a command."""
    return _command_line(arguments).options()


def _command_line(arguments: list[str]) -> CommandLine:
    """Begin to parse a command, whose docstring is its help text."""
    command, *words = arguments
    return CommandLine(command, words, inspect.getdoc(COMMANDS[command]) or "")


def _parse_with_algorithm(arguments: list[str]) -> AnyOptions:
    """Parse the options of a command whose first argument, the algorithm, adds options."""
    from ..runs.registry.algorithms import algorithm_names, find_algorithm
    from ..runs.registry.environments import suites

    command, line = f"triglot {arguments[0]}", _command_line(arguments)
    if line.asks_for_help and not line.leading and line.file is None:
        choices = ", ".join(algorithm_names())
        note = f"Each algorithm ({choices}) adds options: {command} ppo --help"
        raise HelpAsked(line.help(note))
    name, env = line.text("algorithm"), line.text("env")
    if name.partition(":")[0] in suites() and env in algorithm_names():
        raise TriglotError(f"the algorithm comes first: {command} {env} {name}")
    if not name or not (env or line.asks_for_help):
        if line.file is not None:
            lacking = "env" if name else "algorithm"
            raise TriglotError(f"{line.file.path} has no {lacking}: add it, or give it first.")
        if name and name not in algorithm_names():
            find_algorithm(name)  # says what is wrong with it
        raise TriglotError(
            f"give an algorithm and an environment first: {command} ppo gymnax:CartPole-v1"
        )
    algorithm = find_algorithm(name)
    line.add_algorithm(algorithm)
    settings, preset = preset_settings(line.settings, OPTIONS[arguments[0]], algorithm)
    options = line.options(settings)
    in_file = line.file and line.file.preset and preset_in_file(options, line.file.preset)
    if in_file:
        return replace(options, preset=in_file, no_preset=False)
    return replace(options, preset=preset)


def _options_of_run(options: RunOptions) -> TrainOptions:
    from ..runs.storage.config import options_of_run

    run_options = options_of_run(options.run, trust=options.trust)
    _set_compilation_cache(options)
    return run_options


def _set_compilation_cache(options: MachineOptions) -> None:
    if options.compilation_cache is not None:
        check_writable("--compilation-cache", options.compilation_cache)
    configure(options)
