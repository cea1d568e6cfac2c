"""Make environments by name; a suite's library is imported on first use.

A built-in suite takes precedence over one of an installed package.
"""

import ast
import difflib
import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...core import plugins
from ...core.errors import (
    MissingExtra,
    TriglotError,
    UnknownOption,
    check_known,
    check_version,
    kind_of,
    shown,
    user_error_context,
)
from ...core.wrappers.options import wrap, wrapper_options
from .loading import advise_file, env_of, is_module, is_path, load, search_here
from .origins import name_of_env, remember_env, with_options

if TYPE_CHECKING:
    from ...core.environment import Environment


@dataclass(frozen=True)
class Suite:
    """A suite of environments.

    Attributes:
      module: a module with `make(name, **options)` and `names()`.
      example: a name that `make` accepts.
      library: the library it needs, which is also the name of its extra; None if none.
      functions: options that may name a function, `package.module:object`, or the folder of a run,
        whose policy is loaded as one.
      words: values of these options with a meaning of their own, also where a folder is called so.
    """

    module: str
    example: str
    library: str | None = None
    functions: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


SUITES = {
    "gridworld": Suite("triglot.envs.gridworld", "8x8"),
    "gymnax": Suite("triglot.envs.gymnax", "CartPole-v1", "gymnax"),
    "gymnasium": Suite("triglot.envs.gymnasium", "CartPole-v1", "gymnasium"),
    "envpool": Suite("triglot.envs.envpool", "HalfCheetah-v4", "envpool"),
    "jumanji": Suite("triglot.envs.jumanji", "Maze-v0", "jumanji"),
    "brax": Suite("triglot.envs.brax", "ant", "brax"),
    "playground": Suite("triglot.envs.playground", "CartpoleBalance", "playground"),
    "navix": Suite("triglot.envs.navix", "Navix-DoorKey-8x8-v0", "navix"),
    "xminigrid": Suite("triglot.envs.xminigrid", "MiniGrid-DoorKey-8x8", "xminigrid"),
    "craftax": Suite("triglot.envs.craftax", "Craftax-Classic-Symbolic-v1", "craftax"),
    "pgx": Suite(
        "triglot.envs.pgx", "connect_four", "pgx", functions=("opponent",), words=("random", "self")
    ),
    "probe": Suite("triglot.envs.probes", "two-step"),
}
# By name, since that room is above this one.
POLICY_OF_RUN = "triglot.export.opponent:player_of_run"
STEPPED_IN_PYTHON = ("gymnasium", "envpool")  # no wrapper of ours applies


def make_env(env: Any, /, **options: object) -> "Environment":
    """Make an environment from a name, a class, a function or an object.

    Args:
      env: `suite:name`, such as `gymnax:CartPole-v1`; or `package.module:object`; or a name
        registered by an installed package. Options may follow after commas. Or the object itself:
        an `Environment`, an environment of Gymnasium, or a class or function that returns one of
        them. A training deep-copies an environment of Gymnasium for each of its environments, and
        calls a class or function once for each.
      options: passed to the suite or function, together with those in the name. Those of wrappers,
        such as `frame_stack`, wrap the environment unless it has options of these names itself; in
        the order of `core.wrappers.options.WRAPPERS`, whatever the order in which they are given.

    Raises:
      TriglotError: if there is no such environment, with the nearest existing one; or if making it
        fails.

    >>> make_env("gridworld:8x8").name
    'gridworld:8x8'
    >>> make_env("gymnax:CartPole-v1,max_steps_in_episode=200").options
    (('max_steps_in_episode', 200),)
    >>> make_env("gymnax:Breakout-MinAtar,frame_stack=4").obs_spec.shape
    (10, 10, 16)
    """
    if env is None or isinstance(env, int | float | bytes | list | tuple | dict):
        raise TriglotError(
            "make_env takes the name of an environment, such as 'gymnax:CartPole-v1', or an "
            f"environment, a class or a function that makes one; got {kind_of(env)}."
        )
    name, in_name = _split_options(env) if isinstance(env, str) else (env, {})
    options = {**in_name, **options}
    environment = _with_wrapper_options(name, dict(options))
    text = name_of_env(name)
    text = None if text is None else with_options(text, options)
    if text is not None:
        remember_env(environment, text)
    return environment


def _with_wrapper_options(name: Any, options: dict[str, object]) -> "Environment":
    """Make an environment, and wrap it by the options that it does not have itself."""
    of_wrappers: dict[str, object] = {}
    # Options of wrappers are found by trying, so that suites need no list of their options, and a
    # suite's option takes precedence. An environment may report one unknown option at a time.
    while True:
        try:
            env = _make(name, options) if isinstance(name, str) else env_of(name, options)
            break
        except TriglotError as error:
            unknown_here = _wrappers_unknown_to(error, options)
            if not unknown_here:
                raise _with_wrappers(error, name) from None
            of_wrappers |= {option: options.pop(option) for option in unknown_here}
    return wrap(env, of_wrappers)


def _wrappers_unknown_to(error: TriglotError, options: dict[str, object]) -> list[str]:
    """List the options of wrappers that an environment was given, failed with and does not have."""
    wrapper_names = [option for option in options if option in wrapper_options()]
    if isinstance(error, UnknownOption):
        return [option for option in wrapper_names if option not in error.known]
    # Python's words; libraries and functions of the person's own do not check their options.
    return [
        option
        for option in wrapper_names
        if f"unexpected keyword argument '{option}'" in str(error)
    ]


def _with_wrappers(error: TriglotError, name: Any) -> TriglotError:
    """Suggest the options of wrappers too, where they can be used."""
    on_host = isinstance(name, str) and name.partition(":")[0] in STEPPED_IN_PYTHON
    if not isinstance(error, UnknownOption) or on_host:
        return error
    return UnknownOption(
        error.environment, error.option, dict.fromkeys([*error.known, *wrapper_options()])
    )


def _make(name: str, options: dict[str, object]) -> "Environment":
    suite, colon, rest = name.partition(":")
    if suite in suites() and rest:
        module = load_suite(suite)
        if ":" in rest:  # `module:name`, as in Gymnasium
            search_here()
        if suite in SUITES:
            values = {n: options[n] for n in SUITES[suite].functions if n in options}
            values = {n: value for n, value in values.items() if value not in SUITES[suite].words}
            functions = {n: _function(n, value, name) for n, value in values.items()}
            return module.make(rest, **options | functions)
        with user_error_context(f"environment {name!r} failed when it was created"):
            return module.make(rest, **options)
    if suite in suites() or (not colon and name not in plugins.names("environment")):
        advise_file("environment", name)
        raise _without_suite(name)
    if colon and (not is_path(name) or not is_module(suite)):
        check_known("environment suite", suite, suites())
    return env_of(load("environment", name), options, name)


def _function(option: str, value: object, env: str) -> Any:
    """Load what an option names, a function or the policy of a run; return other values."""
    if isinstance(value, str) and is_path(value):
        return load(option, value)
    if isinstance(value, str | Path) and _is_run(value):
        return load(option, POLICY_OF_RUN)(str(value), env)
    return value


def runs_in(name: str) -> dict[str, Path]:
    """Find the run directories that an environment's options name, such as a game's opponent."""
    suite, options = name.partition(":")[0], _split_options(name)[1]
    functions = SUITES[suite].functions if suite in SUITES else ()
    values = {option: options[option] for option in functions if option in options}
    return {
        n: Path(value) for n, value in values.items() if isinstance(value, str) and _is_run(value)
    }


def with_resolved_runs(name: str) -> str:
    """Write the run directories in an environment's name as absolute paths, valid anywhere."""
    for option, folder in runs_in(name).items():
        resolved = str(folder.resolve())
        if "," not in resolved:  # which would begin another option
            name = name.replace(f",{option}={folder}", f",{option}={resolved}")
    return name


def _is_run(value: str | Path) -> bool:
    return not is_path(str(value)) and (Path(value) / "config.json").is_file()


def _split_options(name: str) -> tuple[str, dict[str, object]]:
    """Split the options off a name.

    >>> _split_options("jumanji:Maze-v0,num_rows=5,observation=dict")
    ('jumanji:Maze-v0', {'num_rows': 5, 'observation': 'dict'})
    """
    name, *pairs = name.split(",")
    options = {}
    for pair in pairs:
        option, equals, value = pair.partition("=")
        if not (option.isidentifier() and equals):
            raise TriglotError(
                f"environment {shown(name)}: write options as name,option=value,option=value; "
                f"got {shown(pair)}."
            )
        if not value:
            raise TriglotError(f"environment {name!r}: {option} is empty: give {option}=VALUE.")
        try:
            read = ast.literal_eval(value)
        except (SyntaxError, ValueError, MemoryError, RecursionError):  # a name, or no expression
            read = value
        if options.setdefault(option, read) != read:
            raise TriglotError(
                f"environment {name!r}: {option} is given twice, as {shown(options[option])} and "
                f"{shown(read)}: give it once."
            )
    return name, options


def suites() -> list[str]:
    """List the environment suites without importing them."""
    added = [plugin.name for plugin in plugins.installed("environment") if plugin.is_suite]
    return [*SUITES, *(name for name in added if name not in SUITES)]


def load_suite(name: str) -> ModuleType:
    """Import a suite's module, which has `make(name, **options)` and `names()`.

    Raises:
      TriglotError: if there is no such suite, or it cannot be imported.
    """
    check_known("environment suite", name, suites())
    if name in SUITES:
        if (library := SUITES[name].library) is not None:
            check_version(library, extra=library)
        return importlib.import_module(SUITES[name].module)
    return load("environment", name)


def _without_suite(name: str) -> TriglotError:
    full = {env: env for env in plugins.names("environment")}
    for suite, where in SUITES.items():
        try:
            module = importlib.import_module(where.module)
            full = {env: f"{suite}:{env}" for env in module.names()} | full
        except MissingExtra:
            continue
    by_letters = {env.lower(): whole for env, whole in full.items()}
    near = difflib.get_close_matches(name.rstrip(":").lower(), by_letters, n=1, cutoff=0.6)
    hint = f"; did you mean {by_letters[near[0]]!r}?" if near else "."
    return TriglotError(
        f"environment {shown(name)} must have the form suite:name{hint} "
        f"Suites: {', '.join(suites())} (`triglot list gymnax` lists one)."
    )
