"""Translate a training state between network libraries: weights, targets and moments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from ...backends.pairing.stacks import align_stacks
from ...backends.translate import pair_parameters, translate
from ...core.agent import Agent
from ...core.errors import TriglotError
from ...core.learner import LearnerState
from ...core.network import Codec, Network, Variables
from ...core.types import AnyAgentState, PyTree, PyTreeDef, abstract_key, type_differences


@dataclass(frozen=True)
class _Form:
    """How the parameters of one network look in both libraries.

    Attributes:
      structure, shapes: of the first library's parameters.
      source, target: the codecs.
      names: the target's parameters by the canonical names of the source.
      state: the structure of the second library's state besides parameters, which has the arrays
        of the first one's.
    """

    structure: PyTreeDef
    shapes: tuple[tuple[int, ...], ...]
    source: Codec
    target: Codec
    names: Mapping[str, str]
    state: PyTree

    def fits(self, node: PyTree) -> bool:
        if jax.tree.structure(node) != self.structure:
            return False
        return tuple(jnp.shape(leaf) for leaf in jax.tree.leaves(node)) == self.shapes

    def params(self, node: PyTree) -> PyTree:
        encoded = self.source.encode(node)
        return self.target.decode({self.names.get(name, name): encoded[name] for name in encoded})

    def moments(self, node: PyTree) -> PyTree:
        # Only the linear part: a layout may add a constant to a parameter, but not to its moments.
        zeros = jax.tree.map(jnp.zeros_like, node)
        return jax.jvp(self.params, (zeros,), (node,))[1]


def translate_agent_state(state: AnyAgentState, source: Agent, target: Agent) -> AnyAgentState:
    """Translate the state of one seed's agent from one library to another, without rounding.

    Everything with the structure of the network's parameters, or of one of its parts, is
    translated: weights, targets, and what the optimizer keeps per parameter. All else is kept.

    Args:
      state: of `source`.
      source: the agent on networks of the first library.
      target: the same algorithm on networks of the second library.

    Returns:
      The state of `target`.

    Raises:
      TriglotError: if the networks cannot be translated, or something else in the state depends on
        the library.
    """
    first, second = source.network, target.network
    check_translatable(first, second)
    first, second = align_stacks(first, second)
    forms = [_form(first, second)]
    forms += [_form(part, second.parts[name]) for name, part in first.parts.items()]
    usable = [form for form in forms if not jax.tree_util.treedef_is_leaf(form.structure)]
    moved = _walk(state, usable, _Form.params)
    expected = jax.eval_shape(lambda key: target.init(key, target.num_envs), abstract_key())
    for name, (dtype, needed) in type_differences(moved, expected).items():
        raise TriglotError(
            f"the agent's state depends on the library in a way that is not known: {name} is "
            f"{dtype} after the translation, and {second.backend} needs {needed}."
        )
    return jax.tree.unflatten(jax.tree.structure(expected), jax.tree.leaves(moved))


def check_translatable(first: Network, second: Network) -> None:
    """Check that the weights of one network can be those of another; nothing is computed.

    Raises:
      TriglotError: as `translate`.
    """
    example = jax.eval_shape(first.init, abstract_key())
    jax.eval_shape(lambda variables: translate(variables, first, second), example)


def _form(first: Network, second: Network) -> _Form:
    variables = jax.eval_shape(first.init, abstract_key())
    state = jax.tree.structure(jax.eval_shape(second.init, abstract_key()).state)
    shapes = tuple(leaf.shape for leaf in jax.tree.leaves(variables.params))
    assert first.codec is not None and second.codec is not None  # `translate` has checked it
    structure = jax.tree.structure(variables.params)
    pairs, _ = pair_parameters(variables, first, second)
    names = {name: pair.name for name, pair in pairs.items()}
    return _Form(structure, shapes, first.codec, second.codec, names, state)


def _walk(tree: PyTree, forms: list[_Form], convert: Callable[[_Form, PyTree], PyTree]) -> PyTree:
    """Convert each subtree that has the form of a network's parameters."""

    def find(node: PyTree) -> _Form | None:
        return next((form for form in forms if form.fits(node)), None)

    def is_leaf(node: PyTree) -> bool:
        return isinstance(node, LearnerState | Variables) or find(node) is not None

    def moved(node: PyTree) -> PyTree:
        if isinstance(node, LearnerState):
            variables = moved(node.variables)
            opt_state = _walk(node.opt_state, forms, _Form.moments)
            return replace(node, variables=variables, opt_state=opt_state)
        form = find(node.params if isinstance(node, Variables) else node)
        if form is None:
            return node
        if isinstance(node, Variables):
            state = jax.tree.unflatten(form.state, jax.tree.leaves(node.state))
            return Variables(params=convert(form, node.params), state=state)
        return convert(form, node)

    return jax.tree.map(moved, tree, is_leaf=is_leaf)
