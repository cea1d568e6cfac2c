"""Prepare the next jobs of a comparison on threads, while the first one is prepared and trained."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def ahead(calls: Sequence[Callable[[], T]], at_once: int) -> Generator[Callable[[], T]]:
    """Yield a function for each call, in order, that returns its result or raises its error.

    Args:
      calls: they wait most of the time, such as for another process.
      at_once: how many have begun and are not finished with: the one whose function was yielded
        last, and those that follow. With 1, a call begins when its function is called.

    >>> [result() for result in ahead([lambda: "a", lambda: "b"], at_once=2)]
    ['a', 'b']
    """
    if at_once == 1:
        yield from calls
        return
    with ThreadPoolExecutor(at_once) as pool:
        left = iter(calls)
        begun = [pool.submit(call) for call in islice(left, at_once)]
        while begun:
            yield begun.pop(0).result
            begun += [pool.submit(call) for call in islice(left, 1)]
