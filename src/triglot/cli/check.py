"""`triglot check`: run the checker of a component and print its report."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ..backends import libraries
from ..core.errors import TriglotError, check_known, user_error_context
from ..core.host_environment import require_jittable
from ..runs.registry.agents import build_agent, describe_images
from ..runs.registry.components import Component
from ..runs.registry.environments import load_suite, make_env, suites
from ..runs.registry.loading import call_env, make_network
from ..runs.registry.overrides import from_overrides
from ..shared.terminal.progress import Bar, phase
from ..shared.terminal.wrapping import wrapped
from .fitting import fitting_env, misfit_of_agent, small_agent
from .options import CheckOptions

if TYPE_CHECKING:
    from ..checks import Report
    from ..core.agent import Agent
    from ..core.environment import Environment
    from ..core.network import Network
    from ..core.networks.architecture import NetworkSpec

PASSED, FAILED, UNCHECKED, INTERRUPTED = 0, 1, 2, 130

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
            yield name, lambda make=make: check_environment(make())
        return
    env = _env_for(component, options)
    label = f"{component.text} on {env.name}"
    if component.kind == "network":
        network = partial(make_network, component.text, component.loaded, env)
        if component.target is None:
            yield label, lambda: check_network(network(), env.obs_spec)
            return
        check = partial(_check_for_algorithm, component, component.target, options, env)
        yield f"{label} for {component.target}", lambda: check(network())
    else:
        if component.algorithm is not None:
            config = from_overrides(component.algorithm.Config, options.config)
            for line in describe_images(component.algorithm, env, config):
                print(f"in a training, {line}", file=sys.stderr)
        for backend in options.backends:
            make = partial(_agent, component, options, backend)
            where = label if component.algorithm is None else f"{label}, {backend}"
            yield where, lambda make=make: check_agent(make(env), env)


def _env_for(component: Component, options: CheckOptions) -> "Environment":
    """Make the environment that was chosen, or find one that fits, and say which."""
    if options.env is not None:
        env = make_env(options.env)
        require_jittable(env)
        return env

    def make_network_for(env: "Environment") -> "Network":
        if component.target is not None:
            _require_support(component, options, env)
        return make_network(component.text, component.loaded, env)

    with user_error_context(f"{component.text} could not be checked"), phase("importing"):
        if component.kind == "network":
            env, passed_over = fitting_env(make_network_for)
        else:
            make = partial(_agent, component, options, options.backends[0])
            env, passed_over = fitting_env(make, misfit_of_agent)
    if passed_over:
        print(f"chose {env.name}, the first that fits. {passed_over}", file=sys.stderr)
    return env


def _check_for_algorithm(
    component: Component,
    algorithm: str,
    options: CheckOptions,
    env: "Environment",
    network: "Network",
) -> "Report":
    """Check a network alone, then build the algorithm with it; its other networks are built in."""
    from ..backends import build
    from ..checks import check_network
    from ..checks.report import Check, Checklist, Failed, NotApplicable
    from ..core.network import Network

    name = component.role
    specs = _require_support(component, options, env)
    needed = {key: spec for key, spec in specs.items() if not isinstance(spec, Network)}
    if name is not None:
        check_known(f"network of {algorithm}", name, needed)
    report = check_network(network, env.obs_spec if name is None else needed[name].obs_spec)

    def has_heads(case: None) -> None:
        if any(result.name == "apply" and result.outcome != "passed" for result in report.results):
            raise NotApplicable("it needs apply, which did not pass.")
        networks: Network | Mapping[str, Network] = network
        if name is not None:
            others = {key: replace(spec, ensemble_size=1) for key, spec in needed.items()}
            networks = {**build(options.backends[0], others).parts, name: network}
        try:
            build_agent(
                algorithm, env, config=options.config, hyper=options.hyper, networks=networks
            )
        except TriglotError as error:
            raise Failed(str(error)) from None

    check = Check(
        "heads",
        f"Does it return the heads that {algorithm} needs?",
        f"{algorithm} reads its outputs by name, in fixed shapes.",
        "Return a dictionary of heads with these names and shapes. If the algorithm uses several "
        f"networks, check each as NAME=PART; names of {algorithm}: {', '.join(needed)}.",
        has_heads,
    )
    return replace(report, results=(*report.results, *Checklist([check]).run(None)))


def _require_support(
    component: Component, options: CheckOptions, env: "Environment"
) -> "Mapping[str, NetworkSpec | Network]":
    """Describe the networks of an algorithm, which must support the environment."""
    config = from_overrides(component.algorithm.Config, options.config)
    with user_error_context(f"{component.target} does not support {env.name}"):
        return component.algorithm.networks(env.obs_spec, env.action_spec, config)


def _agent(
    component: Component, options: CheckOptions, backend: str, env: "Environment"
) -> "Agent":
    if component.algorithm is None:
        return component.loaded
    return small_agent(component.text, env, options.config, backend=backend, hyper=options.hyper)


def _environments(component: Component) -> Iterator[tuple[str, Callable[[], Any]]]:
    if component.loaded is not None:  # not by `make_env`, which rejects what the checker explains
        yield component.text, partial(call_env, component.text, component.loaded, {})
    elif component.text in suites():
        for name in load_suite(component.text).names():
            full = f"{component.text}:{name}"
            yield full, partial(make_env, full)
    else:
        yield component.text, partial(make_env, component.text)
