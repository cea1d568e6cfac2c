"""The gradients of a network without some of its `stop_gradient`s and custom derivatives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import numpy as np
from jax.extend import core as jex

from ...core.network import Variables
from ...core.tracing.jaxprs import bind, called_program, ends_of_scan, evaluate, walk
from ...core.types import PyTree
from ..measures.compiling import quick_jit
from ..measures.subject import Arrays, Subject, loss_of
from ..programs.places import describe_equation
from ..types import Operation

Callers: TypeAlias = tuple[jex.JaxprEqn, ...]

STOP, CUSTOM = "stop_gradient", "custom_gradient"
NAMES = {
    "stop_gradient": STOP,
    "custom_jvp_call": CUSTOM,
    "custom_vjp_call": CUSTOM,
    "custom_vjp_call_jaxpr": CUSTOM,
}


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule of differentiation that a network's code states: where the chain rule is left.

    Attributes:
      kind: `stop_gradient` or `custom_gradient`.
      name: the function with a custom derivative, with its file and line; else empty.
      equations: the rule's equations in the program; several calls of one function have one rule.
      operation: the first place of the rule in the program.
    """

    kind: str
    name: str
    equations: tuple[jex.JaxprEqn, ...]
    operation: Operation


class Program:
    """A traced network, whose gradients are computed with or without its rules.

    Attributes:
      rules: the rules of the forward pass, in order.
    """

    def __init__(self, subject: Subject, key: jax.Array, *, train: bool) -> None:
        def forward(params: PyTree) -> list[jax.Array]:
            variables = Variables(params=params, state=subject.variables.state)
            return list(subject.apply(variables, subject.inputs, key, train)[0].values())

        self._subject = subject
        self._closed = jax.make_jaxpr(forward)(subject.variables.params)
        self.rules = _rules(self._closed.jaxpr)
        self._computed: dict[frozenset[Rule], dict[str, np.ndarray]] = {}

    def gradients(self, without: frozenset[Rule] = frozenset()) -> dict[str, np.ndarray]:
        """Compute the gradients by shared name.

        Args:
          without: rules to leave out; those of other programs have no effect. A `stop_gradient`
            becomes the identity, and a function with a custom derivative is differentiated
            operation by operation.
        """
        rules = without.intersection(self.rules)
        if rules not in self._computed:
            skipped = {id(equation) for rule in rules for equation in rule.equations}
            compiled = quick_jit(lambda params: self._gradients(params, skipped))
            self._computed[rules] = jax.tree.map(
                np.asarray, compiled(self._subject.variables.params)
            )
        return self._computed[rules]

    def _gradients(self, params: PyTree, skipped: set[int]) -> Arrays:
        names = [name for name, _ in self._subject.outputs]

        def loss(params: PyTree) -> jax.Array:
            outputs = _run(self._closed, jax.tree.leaves(params), skipped)
            return loss_of(dict(zip(names, outputs, strict=True)), self._subject.targets)

        return self._subject.named_gradients(jax.grad(loss)(params))


def _rules(jaxpr: jex.Jaxpr) -> list[Rule]:
    """List the rules of a program; those inside a function with a custom derivative are its own."""
    grouped: dict[tuple[str, str, int | None], list[tuple[jex.JaxprEqn, Callers]]] = {}
    # A function that is called twice is traced once.
    equations = walk(jaxpr, enter=lambda equation: equation.primitive.name not in NAMES)
    distinct = {id(equation): (equation, callers) for equation, callers in equations}
    for equation, callers in distinct.values():
        if equation.primitive.name not in NAMES:
            continue
        name = _name(equation)
        # Each `stop_gradient` has its own place, but all calls of a function its one derivative.
        key = (NAMES[equation.primitive.name], name, None if name else id(equation))
        grouped.setdefault(key, []).append((equation, callers))
    return [
        Rule(
            kind,
            name,
            tuple(equation for equation, _ in equations),
            describe_equation(*equations[0], name=name or kind),
        )
        for (kind, name, _), equations in grouped.items()
    ]


def _name(equation: jex.JaxprEqn) -> str:
    """Return the name and place of a function with a custom derivative."""
    if NAMES[equation.primitive.name] == STOP:
        return ""
    info = getattr(getattr(called_program(equation), "jaxpr", None), "debug_info", None)
    return str(getattr(info, "func_src_info", "") or equation.primitive.name)


def _run(
    closed: jex.ClosedJaxpr, operands: Sequence[jax.Array], skipped: set[int]
) -> list[jax.Array]:
    """Evaluate a program; equations whose id is in `skipped` are evaluated without their rule."""

    def rule(equation: jex.JaxprEqn, operands: list[jax.Array]) -> Sequence[jax.Array]:
        name, params = equation.primitive.name, equation.params
        if name in NAMES and id(equation) not in skipped:
            return bind(equation, operands)
        if name == "stop_gradient":
            return operands
        if name == "scan":
            return _scan(equation, operands, skipped)
        if name == "cond":
            branches = [
                lambda *arguments, b=b: _run(b, arguments, skipped) for b in params["branches"]
            ]
            return jax.lax.switch(operands[0], branches, *operands[1:])
        program = called_program(equation)
        return bind(equation, operands) if program is None else _run(program, operands, skipped)

    jaxpr = closed.jaxpr
    values = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values.update(zip(jaxpr.invars, operands, strict=True))
    read_atom = evaluate(jaxpr.eqns, values, rule)
    return [read_atom(atom) for atom in jaxpr.outvars]


def _scan(
    equation: jex.JaxprEqn, operands: Sequence[jax.Array], skipped: set[int]
) -> list[jax.Array]:
    params = equation.params
    first, last = ends_of_scan(params)
    constants, carry, scanned = operands[:first], operands[first:last], operands[last:]

    def body(
        carry: list[jax.Array], row: list[jax.Array]
    ) -> tuple[list[jax.Array], list[jax.Array]]:
        results = _run(params["jaxpr"], [*constants, *carry, *row], skipped)
        return results[: len(carry)], results[len(carry) :]

    carry, rows = jax.lax.scan(
        body, list(carry), list(scanned), params["length"], params["reverse"]
    )
    return [*carry, *rows]
