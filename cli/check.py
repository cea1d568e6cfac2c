"""`triglot check`: run the checker of a component and print its report."""

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..backends import libraries
from ..core.errors import TriglotError, user_error_context
from ..core.host_environment import require_jittable
from ..registry.agents import make_agent
from ..registry.components import Component
from ..registry.environments import load_suite, make_env, suites
from ..registry.loading import call_env, make_network
from ..registry.overrides import from_overrides
from ..terminal.progress import Bar, phase
from ..terminal.wrapping import wrapped
from .heads import check_for_algorithm
from .options import CheckOptions

if TYPE_CHECKING:
    from ..checks import Report

PASSED, FAILED, UNCHECKED, INTERRUPTED = 0, 1, 2, 130

# Small values for checks, where the algorithm has such a field and no other value is given.
SMALL: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 8,
    "num_epochs": 2,
    "num_minibatches": 2,
    "hidden_sizes": (16,),
}

Task: TypeAlias = Callable[[], "Report"]


def check(component: Component, options: CheckOptions) -> int:
    """Check a component and print the report, with the result in the first line.

    Args:
      component: what is checked.
      options: `config` and `hyper` are the fields that differ from the algorithm's defaults.

    Returns:
      The exit code: 0 if all checks passed, 1 if one failed, 2 if a component could not be checked,
      130 after Ctrl-C.

    Raises:
      TriglotError: if nothing could be checked.
    """
    _check_used(component, options)
    tasks = dict(_tasks(component, options))
    if len(tasks) == 1:
        ((label, task),) = tasks.items()
        print(f"checking {label} ...", file=sys.stderr, flush=True)
        with user_error_context(f"{label} could not be checked"), phase("checking"):
            report = task()
        print(wrapped(str(report)) if sys.stdout.isatty() else report)
        return PASSED if report.passed else FAILED
    return _check_all(component.text, tasks)


def _check_used(component: Component, options: CheckOptions) -> None:
    """Reject unknown libraries, and options that have no effect on this component."""
    for backend in options.backends:
        libraries.find(backend).require()
    what = f"{component.text!r} is an {component.kind}".replace("an network", "a network")
    if component.kind == "environment" and options.env is not None:
        raise TriglotError(f"--env has no effect: {what} itself; leave it out.")
    if options.backends != CheckOptions(part="").backends and component.algorithm is None:
        raise TriglotError(f"--backends has no effect: {what}, not an algorithm; leave it out.")
    if component.kind == "network" and len(options.backends) != 1:
        raise TriglotError(
            f"--backends takes one library here, for the other networks of {component.target}; "
            f"got {' '.join(options.backends) or 'none'}."
        )


def default_env() -> str:
    """The default environment for algorithms and networks."""
    return "gymnax:CartPole-v1" if importlib.util.find_spec("gymnax") else "probe:two-step"


def small_config(config: Any, given: Mapping[str, Any]) -> Any:
    """Build a small `Config`, unless that conflicts with the given fields.

    Args:
      config: the class.
      given: the chosen fields by name.
    """
    defaults: dict[str, Any] = {one.name: one.default for one in fields(config)}
    small = {
        name: enough if defaults[name] is None else min(defaults[name], enough)
        for name, enough in SMALL.items()
        if name in defaults and isinstance(defaults[name], type(enough) | None)
    }
    try:
        return from_overrides(config, {**small, **given})
    except TriglotError:
        return from_overrides(config, given)


def _check_all(title: str, tasks: Mapping[str, Task]) -> int:
    """Run all checks; print one line each, and the reports of those that failed."""
    reports: dict[str, Report] = {}
    rows: dict[str, str] = {}
    interrupted = False
    with Bar(tasks.items(), desc=title) as bar:
        for label, task in bar:
            bar.set_postfix_str(label)
            try:
                with user_error_context("its code failed"):
                    report = reports[label] = task()
                rows[label] = report.summary().removeprefix(f"{report.component}: ")
            except TriglotError as error:
                rows[label] = f"could not be checked: {error}"
            except KeyboardInterrupt:
                interrupted = True
                break
    failed = {label: report for label, report in reports.items() if not report.passed}
    counts = {
        "passed": len(reports) - len(failed),
        "failed": len(failed),
        "could not be checked": len(rows) - len(reports),
        "not reached": len(tasks) - len(rows),
    }
    print(f"{title}: {', '.join(f'{count} {what}' for what, count in counts.items() if count)}")
    width = max(map(len, tasks))
    for label, row in rows.items():
        print(f"  {label:<{width}}  {row}")
    for label, report in failed.items():
        print(f"\n{label}: {report}")
    if interrupted:
        return INTERRUPTED
    return FAILED if failed else PASSED if len(rows) == len(reports) else UNCHECKED


def _tasks(component: Component, options: CheckOptions) -> Iterator[tuple[str, Task]]:
    """Yield the checks by label."""
    from ..checks import check_agent, check_environment, check_network

    if component.kind == "environment":
        for name, make in _environments(component):
            yield name, lambda make=make: check_environment(_compilable(make()))
        return
    env = _compilable(make_env(options.env or default_env()))
    label = f"{component.text} on {env.name}"
    if component.kind == "network":
        network = partial(make_network, component.text, component.made, env)
        if component.target is None:
            yield label, lambda: check_network(network(), env.obs_spec)
            return
        check = partial(
            check_for_algorithm,
            algorithm=component.target,
            env=env,
            name=component.role,
            config=from_overrides(component.algorithm.Config, options.config),
            hyper=options.hyper,
            backend=options.backends[0],
        )
        yield f"{label} for {component.target}", lambda: check(network())
    elif component.algorithm is None:
        yield label, lambda: check_agent(component.made, env)
    else:
        for backend in options.backends:
            make = partial(_make_small_agent, component, env, backend, options)
            yield f"{label}, {backend}", lambda make=make: check_agent(make(), env)


def _make_small_agent(component: Component, env: Any, backend: str, options: CheckOptions) -> Any:
    """Build a small agent, or one of the given size if the small values conflict with it."""

    def make(config: Any) -> Any:
        return make_agent(component.text, env, backend=backend, config=config, hyper=options.hyper)

    config = component.algorithm.Config
    try:
        return make(small_config(config, options.config))
    except TriglotError:
        return make(from_overrides(config, options.config))


def _compilable(env: Any) -> Any:
    require_jittable(env)
    return env


def _environments(component: Component) -> Iterator[tuple[str, Callable[[], Any]]]:
    if component.made is not None:  # not by `make_env`, which rejects what the checker explains
        yield component.text, partial(call_env, component.text, component.made, {})
    elif component.text in suites():
        for name in load_suite(component.text).names():
            full = f"{component.text}:{name}"
            yield full, partial(make_env, full)
    else:
        yield component.text, partial(make_env, component.text)
