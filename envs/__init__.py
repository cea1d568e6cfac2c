"""The environment suites, one module each: `make(name, **options)` and `names()`.

On the command line and in reports an environment's name is `suite:name`, such as
`gymnax:CartPole-v1`; `make` takes the part after the colon.
"""

from collections.abc import Iterable

from ..core.errors import TriglotError, unknown


def check_options(environment: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Reject options that an environment does not have.

    Raises:
      TriglotError: naming the first unknown option and the nearest known one.

    >>> check_options("gridworld:8x8", ["observations"], ["observation"])
    Traceback (most recent call last):
    triglot.core.errors.TriglotError: unknown option of gridworld:8x8 'observations'; ...
    """
    known = list(known)
    for name in given:
        if not known:
            raise TriglotError(f"{environment} takes no options, got {name!r}.")
        if name not in known:
            raise unknown(f"option of {environment}", name, known)
