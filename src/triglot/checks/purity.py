"""Checks that agents, environments and networks share: their functions must be pure.

Each function must be deterministic, leave its arguments unchanged and use every key once, and it
must work under jit, vmap and scan without a second compilation. A `Case` lists the calls to try.
"""

import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ..core.errors import TriglotError
from ..core.loop.checkpoint import restore, save
from ..core.types import PyTree, is_key
from . import trees
from .report import Check, Checklist, Failed, describe_error, reject

# The same effect as jax_disable_most_optimizations; saves 40 % of the time.
FAST_COMPILATION = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
NUM_ROWS = 3


def attempt(text: str, function: Callable[..., PyTree], *args: PyTree) -> PyTree:
    """Call the component's code; report an exception as a finding that starts with `text`."""
    try:
        return function(*args)
    except TriglotError as error:
        raise Failed(f"{text} failed: {error}") from None
    except Exception as error:
        raise Failed(f"{text} raised {describe_error(error)}") from None


class Compiled:
    """A jitted function that counts how often it is traced."""

    def __init__(self, text: str, function: Callable[..., PyTree]) -> None:
        self.text, self.num_traces = f"{text} under jax.jit", 0

        def counted(*args: PyTree) -> PyTree:
            self.num_traces += 1
            return function(*args)

        self._jitted = jax.jit(counted, compiler_options=FAST_COMPILATION)

    def __call__(self, *args: PyTree) -> PyTree:
        return attempt(self.text, self._jitted, *args)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A pure function of the component, and arguments to try it with.

    Attributes:
      name: the function's name.
      function: takes the arguments by position.
      args: by name.
      constants: further arguments that `function` already contains, as messages spell them.
      compare: the part of the result that must agree with the compiled one.
      rtol, atol, of_largest: tolerances of that comparison.
      batch: arguments stacked along a leading axis for vmap; None to vary the keys only.
    """

    name: str
    function: Callable[..., Any]
    args: Mapping[str, PyTree]
    constants: tuple[str, ...] = ()
    compare: Callable[[PyTree], PyTree] = lambda result: result
    rtol: float = 1e-4
    atol: float = 1e-5
    of_largest: float = 0.0
    batch: Callable[[], tuple[PyTree, ...]] | None = None

    @property
    def text(self) -> str:
        """Return the call as code."""
        return f"`{self.name}({', '.join([*self.args, *self.constants])})`"

    def run(self, *args: PyTree) -> PyTree:
        """Call the function eagerly."""
        return attempt(self.text, self.function, *args)

    @cached_property
    def first(self) -> tuple[PyTree, dict[str, PyTree]]:
        """The result of the first eager call, and its arguments as the call left them."""
        args = {name: trees.copied(value) for name, value in self.args.items()}
        return self.run(*args.values()), args

    @property
    def result(self) -> PyTree:
        """The result of the first eager call."""
        return self.first[0]

    @cached_property
    def compiled(self) -> Compiled:
        return Compiled(self.text, self.function)

    @cached_property
    def compiled_result(self) -> PyTree:
        """The result of the compiled function for the same arguments."""
        return self.compiled(*self.args.values())

    @cached_property
    def batched(self) -> Compiled:
        """The function under vmap, compiled."""
        return Compiled(f"{self.text} under jax.vmap", jax.vmap(self.function))

    def difference(self, first: PyTree, second: PyTree) -> str:
        """Describe how two results differ by more than the tolerance."""
        one, other = self.compare(first), self.compare(second)
        return trees.find_value_difference(
            "result", one, other, rtol=self.rtol, atol=self.atol, of_largest=self.of_largest
        )


class Case(ABC):
    """A component being checked; subclasses cache what several checks use."""

    vmap_traces_only = False  # where a compilation would take seconds and find nothing more

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.notes: list[str] = []

    def key(self, number: int) -> jax.Array:
        """Return a different key for each number."""
        return jax.random.fold_in(jax.random.key(self.seed), number)

    @abstractmethod
    def calls(self) -> Sequence[Call]:
        """The functions to try; the first makes the initial state."""

    @abstractmethod
    def key_sequences(self) -> Sequence[tuple[Callable[..., PyTree], tuple[PyTree, ...]]]:
        """Functions that run several calls in a row, and their arguments."""

    @abstractmethod
    def carried(self) -> Iterable[tuple[str, PyTree, PyTree]]:
        """What a loop carries: name, value before a step and value after it."""

    @abstractmethod
    def run_loop(self) -> None:
        """Run the functions in a compiled loop."""

    @abstractmethod
    def repeated_calls(self) -> Iterator[tuple[str, Compiled, tuple[PyTree, ...]]]:
        """Yield what varies, the compiled function and arguments that must not retrace it."""

    @abstractmethod
    def stored(self) -> dict[str, PyTree]:
        """The arrays that are kept between calls and written to checkpoints."""

    def strongly_typed(self) -> dict[str, PyTree]:
        """The stored arrays that must not have weak dtypes."""
        return self.stored()


CHECKS: Checklist[Case] = Checklist()


def purity_checks(*names: str, needs: Sequence[str]) -> list[Check[Any]]:
    """Select checks of this file, all if no name is given, and add `needs` to theirs."""
    return [
        replace(check, needs=(*check.needs, *needs))
        for check in CHECKS.checks
        if check.name in names or not names
    ]


@CHECKS.check()
def _arguments_unchanged(case: Case) -> None:
    """Do its functions leave their arguments unchanged?

    Why: The caller still uses them: the loop its state, a replay buffer its trajectories.

    Fix: Build new values: {**state, ...}, dataclasses.replace(state, ...), array.at[i].set(x).
    """
    for call in case.calls():
        reject(trees.find_change("", dict(call.args), call.first[1]), f"after {call.text}, ")


@CHECKS.check(needs=["arguments unchanged"])
def _deterministic(case: Case) -> None:
    """Do equal arguments give equal results?

    Why: Otherwise runs cannot be reproduced or resumed, and jit keeps the first call's numbers.

    Fix: Draw random numbers with jax.random from the given key (not numpy.random), and keep
    counters in the state: no time, nothing written to `self` or to a global.
    """
    calls = tuple(case.calls())
    results = [call.result for call in calls]
    # A call with another key must leave nothing behind that changes the later calls.
    calls[0].run(*(_vary_keys(value, 7) for value in trees.copied(tuple(calls[0].args.values()))))
    for call, result in reversed(list(zip(calls, results, strict=True))):
        again = call.run(*trees.copied(tuple(call.args.values())))
        if difference := trees.find_value_difference("result", result, again):
            raise Failed(f"{call.text} called twice with the same arguments: {difference}.")


@CHECKS.check(needs=["deterministic"])
def _keys_used_once(case: Case) -> None:
    """Is each random key used once?

    Why: Two draws from one key are correlated: exploration repeats, layers start as copies.

    Fix: Call jax.random.split(key) and use each part once; split a key in the state at every step
    and return the unused part.
    """
    for function, args in case.key_sequences():
        if problem := _find_reused_key(function, *args):
            raise Failed(problem)


@CHECKS.check(needs=["deterministic"])
def _jit(case: Case) -> None:
    """Do its functions give the same results when compiled?

    Why: Training is compiled as a whole.

    Fix: Use jax.numpy and jax.lax only: branch with jnp.where or jax.lax.cond on values, keep
    shapes independent of values, and do not test for tracers.
    """
    for call in case.calls():
        if difference := call.difference(call.result, call.compiled_result):
            raise Failed(f"{call.text} eager and compiled: {difference}.")


@CHECKS.check(needs=["jit"])
def _vmap(case: Case) -> None:
    """Do its functions give the same results under vmap, row by row?

    Why: Environments and seeds are batched with vmap.

    Fix: Write for one example with JAX functions; a jax.pure_callback needs a vmap_method.
    """
    for call in case.calls():
        rows = call.batch() if call.batch else _vary_rows(tuple(call.args.values()))
        if case.vmap_traces_only:
            batched = jax.vmap(call.function)
            attempt(f"{call.text} under jax.vmap", jax.eval_shape, batched, *rows)
            continue
        many = call.batched(*rows)
        for i in (0, 1, -1):
            args, result = jax.tree.map(lambda leaf, i=i: leaf[i], (rows, many))
            if difference := call.difference(call.compiled(*args), result):
                raise Failed(f"{call.text} alone and as row {i} under jax.vmap: {difference}.")


@CHECKS.check(needs=["vmap"])
def _scan(case: Case) -> None:
    """Do its functions run in a compiled loop whose carry keeps its types?

    Why: Training is such a loop: the carry's structure, shapes and dtypes are fixed.

    Fix: Return each array of the carry with the shape and dtype of the initial one:
    x.astype(before.dtype). jax.disable_jit() shows where an exception is raised.
    """
    for name, before, after in case.carried():
        reject(trees.find_type_change(name, before, after), "after one step, ")
    case.run_loop()


@CHECKS.check(needs=["scan"])
def _compiles_once(case: Case) -> None:
    """Is it compiled only once, for initial and for returned states?

    Why: A second compilation may take longer than the training.

    Fix: Give every array a dtype (jnp.zeros((), jnp.float32), jnp.asarray(x, jnp.float32)): arrays
    made from Python numbers have weak dtypes, which change later. Put no newly created objects in
    the static part of a pytree.
    """
    reject(trees.find_weak_type("", case.strongly_typed()))
    initial, num_traces = None, 0
    for varied, function, args in case.repeated_calls():
        function(*args)
        if initial is None:
            initial, num_traces = args, function.num_traces
        elif function.num_traces > num_traces:
            change = trees.find_type_change("", initial, args) or "shapes and dtypes are equal"
            raise Failed(f"{varied} compiled it a second time; {change}.")


@CHECKS.check()
def _checkpoint(case: Case) -> None:
    """Does its state survive a checkpoint unchanged?

    Why: A run that cannot be saved cannot be resumed.

    Fix: Keep arrays and typed keys in dictionaries, tuples and registered dataclasses.
    """
    tree = jax.tree.map(jnp.asarray, case.stored())
    leaves = trees.by_path(tree)
    if len(leaves) < len(jax.tree.leaves(tree)):
        raise Failed(
            "two arrays have the same path when names are joined by dots.",
            "Use names without dots.",
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint"
        attempt("saving a checkpoint", save, file, tree)
        restored = attempt("restoring a checkpoint", restore, file, tree)
    reject(trees.find_change("", tree, restored), "saved and restored, ")


def _vary_keys(tree: PyTree, number: int) -> PyTree:
    """Replace every random key by another one."""

    def vary(leaf: jax.Array) -> jax.Array:
        if not (isinstance(leaf, jax.Array) and is_key(leaf)):
            return leaf
        keys = jax.vmap(jax.random.fold_in, (0, None))(leaf.ravel(), number)
        return keys.reshape(leaf.shape)

    return jax.tree.map(vary, tree)


def _vary_rows(tree: PyTree) -> PyTree:
    """Stack a tree `NUM_ROWS` times, with other keys in each row."""
    rows = [_vary_keys(tree, number) for number in range(NUM_ROWS)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)


def _find_reused_key(function: Callable[..., PyTree], *args: PyTree) -> str:
    """Trace a function with JAX's key-reuse checker and describe what it finds, if anything."""
    shapes = jax.eval_shape(lambda: args)
    try:
        with jax.debug_key_reuse(True):  # pyright: ignore[reportAttributeAccessIssue]
            jax.eval_shape(jax.jit(lambda *args: function(*args)), *shapes)
    except jax.errors.KeyReuseError as error:
        # JAX's message counts arguments of inner functions; its cause has the user's line.
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        line = re.search(r" \([^()]*, line \d+\)$", describe_error(cause))
        return "a key is used a second time" + (line.group() if line else "")
    except Exception:  # JAX's checker does not support every primitive
        return ""
    return ""
