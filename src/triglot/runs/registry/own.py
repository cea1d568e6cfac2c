"""Tell own code, `package.module:object`, from what is registered by name."""

from collections.abc import Sequence

from ...core import plugins
from .algorithms import algorithm_names
from .environments import suites
from .options import SharedOptions


def own_parts(options: SharedOptions, networks: Sequence[str] = ()) -> list[str]:
    """List the components that are not registered by triglot or an installed package.

    Building one of them imports the module that it names.

    Args:
      options: they name an algorithm, an environment and an optimizer.
      networks: each `package.module:object`, or `NAME=` and that.

    Returns:
      As they were given.
    """
    named = [options.algorithm] if options.algorithm not in algorithm_names() else []
    if not _is_registered(options.env):
        named.append(options.env)
    known = plugins.names("network")
    named += [text for text in networks if (text.partition("=")[2] or text) not in known]
    optimizer = options.optimizer or ""
    return [*named, *([optimizer] if ":" in optimizer else [])]


def _is_registered(env: str) -> bool:
    name, _, _ = env.partition(",")
    suite, colon, rest = env.partition(":")
    if colon and suite in suites():
        # Gymnasium imports the module of `module:name`, also out of an option.
        return ":" not in rest
    return name in plugins.names("environment")
