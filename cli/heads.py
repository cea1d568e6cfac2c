"""Check a network for an algorithm: its outputs must be the heads that the algorithm needs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.errors import TriglotError, unknown, user_error_context
from ..registry.agents import make_agent
from ..registry.algorithms import find_algorithm

if TYPE_CHECKING:
    from ..checks import Report
    from ..core.environment import Environment
    from ..core.network import Network


def check_for_algorithm(
    network: "Network",
    algorithm: str,
    env: "Environment",
    *,
    name: str | None = None,
    config: Any = None,
    hyper: Mapping[str, Any] | None = None,
    backend: str = "linen",
) -> "Report":
    """Check a network alone, then build the algorithm with it.

    Args:
      network: the network.
      algorithm: a registered name or `package.module:object`.
      env: gives the observations and actions.
      name: the algorithm's name for this network, if it has several; the others are built by
        `backend`. None if the network has all heads.
      config: the algorithm's `Config`.
      hyper: the hyperparameters that differ from the defaults.
      backend: the library of the other networks.

    Raises:
      TriglotError: if the algorithm or its network `name` does not exist, or the algorithm does not
        support the environment.
    """
    from ..backends import build
    from ..checks import check_network
    from ..checks.report import Check, Checklist, Failed, NotApplicable
    from ..core.network import Network

    specs = require_support(algorithm, env, config)
    needed = {key: spec for key, spec in specs.items() if not isinstance(spec, Network)}
    if name is not None and name not in needed:
        raise unknown(f"network of {algorithm}", name, needed)
    report = check_network(network, env.obs_spec if name is None else needed[name].obs_spec)

    def has_heads(case: None) -> None:
        if any(result.name == "apply" and result.outcome != "passed" for result in report.results):
            raise NotApplicable("it needs apply, which did not pass.")
        networks: Any = network
        if name is not None:
            others = {key: replace(spec, ensemble_size=1) for key, spec in needed.items()}
            networks = {**build(backend, others).parts, name: network}
        try:
            make_agent(algorithm, env, config=config, hyper=hyper, networks=networks)
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


def require_support(algorithm: str, env: "Environment", config: Any) -> Mapping[str, Any]:
    """Describe the networks of an algorithm for an environment.

    Raises:
      TriglotError: if the algorithm does not support it.
    """
    with user_error_context(f"{algorithm} does not support {env.name}"):
        return find_algorithm(algorithm).networks(env.obs_spec, env.action_spec, config)
