"""What a network is asked next: does it work under JAX's transformations, and on disk?"""

from typing import Any

import jax
import jax.numpy as jnp

from ...core.network import Variables
from ...core.networks.unroll import unroll
from ..report import Failed, NotApplicable
from ..shared import by_path, compiled, different, is_inexact, lost_on_disk, not_finite, unequal
from .answers import CHECKS
from .case import BATCH_SIZE, NetworkCase

NUM_SEEDS, NUM_STEPS = 3, 4
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@CHECKS.check(
    "jit",
    asks="Do init and apply give compiled what they give eagerly?",
    why="training is compiled as a whole.",
    mend="branch with jnp.where or jax.lax.cond; compute constants from shapes, not from arrays.",
    needs=["repeatable"],
)
def _jit(case: NetworkCase) -> None:
    made = case.jitted("`init`", case.network.init, case.init_key)
    found = different("init", by_path(case.made), by_path(made))
    if found := found or unequal("init", case.made, made, **CLOSE):
        raise Failed(f"eager against compiled, {found}")
    for train, eager in ((False, case.evaluated), (True, case.trained)):
        call = case.training if train else case.evaluation
        answer = case.jitted(f"`apply{case.in_words(train)}`", call, case.made, case.inputs)
        found = different("apply", eager, answer) or unequal("apply", eager, answer, **CLOSE)
        if found:
            raise Failed(f"with train={train}, eager against compiled, {found}")


@CHECKS.check(
    "vmap",
    asks="Do init and apply work under vmap over seeds, each seed as it is alone?",
    why="many seeds train side by side in one program.",
    mend="use JAX's functions throughout; a jax.pure_callback needs a vmap_method.",
    needs=["jit"],
)
def _vmap(case: NetworkCase) -> None:
    def start(key: jax.Array) -> tuple[Variables, Any]:
        variables = case.network.init(key)
        return variables, case.evaluation(variables, case.inputs)[0]

    keys = jnp.stack([case.init_key, case.other_key, case.training_key])
    many = case.jitted("`init` and `apply` under jax.vmap over seeds", jax.vmap(start), keys)
    first = jax.tree.map(lambda leaf: leaf[0], many)
    if found := unequal("it", (case.made, case.evaluated[0]), first, **CLOSE):
        raise Failed(f"a seed alone against the same among {NUM_SEEDS}, {found}")


@CHECKS.check(
    "scan",
    asks="Does the state keep its structure, shapes and dtypes in training, so that a scan runs?",
    why="the state is carried through every update, in a loop whose types are fixed.",
    mend="return each array of the state in the shape and dtype in which init made it.",
    needs=["training", "jit"],
)
def _scan(case: NetworkCase) -> None:
    if found := different("state", case.made.state, case.trained[1]):
        raise Failed(f"by apply with train=True, {found}")

    def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
        variables = Variables(params=case.made.params, state=state)
        outputs, state = case.network.apply(variables, case.inputs, key=key, train=True)
        return state, outputs

    keys = jax.random.split(case.training_key, NUM_STEPS)

    def loop(state: Any) -> Any:
        return jax.lax.scan(step, state, keys)

    case.jitted("`apply` in a jax.lax.scan, its state the carry,", loop, case.made.state)


@CHECKS.check(
    "gradient",
    asks="Does value_and_grad give finite gradients, shaped as params, and not all zero?",
    why="they are all an optimizer learns from.",
    mend="look for stop_gradient, round and argmax on the way to every head, sqrt and norm at 0, "
    "and return from value_and_grad(loss)(params) what jax.value_and_grad(has_aux=True) does.",
    needs=["training", "jit", "finite"],
)
def _gradient(case: NetworkCase) -> None:
    if not jax.tree.leaves(case.made.params):
        raise NotApplicable("the network has no parameters.")

    def loss(params: Any) -> tuple[jax.Array, Any]:
        variables = Variables(params=params, state=case.variables.state)
        outputs, state = case.training(variables, case.inputs)
        total = jnp.zeros(())
        for index, head in enumerate(jax.tree.leaves(case.heads(outputs))):
            if is_inexact(head):
                weight = jax.random.normal(case.key(100 + index), head.shape, head.dtype)
                total = total + jnp.sum(weight * head).astype(jnp.float32)
        return total, state

    def gradients(params: Any) -> Any:
        return case.network.value_and_grad(loss)(params)

    answer = case.jitted("`value_and_grad`", gradients, case.made.params)
    if not (isinstance(answer, tuple) and len(answer) == 2):
        raise Failed(f"value_and_grad(loss)(params) gave a {type(answer).__name__}, not a pair")
    grads = answer[1]
    if found := different("gradients", case.made.params, grads) or not_finite("gradients", grads):
        raise Failed(found)
    leaves = by_path(grads)
    zero = [path for path, leaf in leaves.items() if not leaf.any()]
    if len(zero) == len(leaves):
        raise Failed(f"the gradients of all {len(zero)} parameter arrays are zero")
    if zero:
        case.notes.append(f"no gradient reached {', '.join(zero)} on the batch tried.")


@CHECKS.check(
    "compilation",
    asks="Is apply compiled once, for fresh variables and for those that training returns?",
    why="a second compilation may cost more than the training.",
    mend="make what init returns, and the state that apply returns, of one structure: no objects "
    "made anew as static parts of a pytree, no Python numbers among arrays.",
    needs=["scan"],
)
def _compilation(case: NetworkCase) -> None:
    traced: list[Any] = []

    def apply(variables: Variables, inputs: Any, key: jax.Array) -> Any:
        traced.append(jax.tree.structure(variables))
        return case.network.apply(variables, inputs, key=key, train=True)

    quickly = compiled(apply)

    def call(variables: Variables) -> Any:
        return case.call("`apply`", quickly, variables, case.inputs, case.training_key)

    fresh = case.init(case.other_key)
    _, state = call(case.made)
    call(fresh)
    if len(traced) > 1:
        found = different("variables", case.made, fresh, weak=True) or "nothing that can be seen"
        raise Failed(f"variables of another key compiled it again; different is: {found}")
    after = Variables(params=case.made.params, state=state)
    call(after)
    if len(traced) > 1:
        found = different("state", case.made.state, state, weak=True) or "nothing that can be seen"
        raise Failed(f"the state that apply returned compiled it again; different is: {found}")


@CHECKS.check(
    "checkpoint",
    asks="Do the variables come back from disk as they were?",
    why="a training that cannot be saved cannot be resumed.",
    mend="keep variables in dictionaries, tuples and registered dataclasses of arrays, with names "
    "that differ when they are joined by dots, and no arrays of size 0.",
    needs=["init"],
)
def _checkpoint(case: NetworkCase) -> None:
    if found := lost_on_disk("variables", case.made):
        raise Failed(f"saved and restored, {found}")


@CHECKS.check(
    "recurrent",
    asks="Does the carry keep its structure, shapes and dtypes, and does core.unroll run?",
    why="the carry goes from step to step in a scan, and starts anew where an episode does.",
    mend="return the carry in the shapes and dtypes in which initial_carry made it.",
    needs=["jit", "batched"],
)
def _recurrent(case: NetworkCase) -> None:
    if not case.network.recurrent:
        raise NotApplicable("the network is not recurrent.")
    before, after = case.inputs[1], case.evaluated[0][1]
    if found := different("the carry", before, after, weak=True):
        raise Failed(f"in one step, {found}")
    obs = case.sample(case.key(4), NUM_STEPS, BATCH_SIZE)
    first = jnp.eye(NUM_STEPS, BATCH_SIZE, dtype=bool)

    def run(variables: Variables, obs: Any, carry: Any) -> Any:
        return unroll(case.network, variables, obs, first, carry, key=case.training_key, train=True)

    outputs, carry, _ = case.jitted("`core.unroll` of it", run, case.variables, obs, before)
    if found := different("the carry", before, carry):
        raise Failed(f"over {NUM_STEPS} steps, {found}")
    for path, leaf in by_path(outputs).items():
        if leaf.shape[:2] != (NUM_STEPS, BATCH_SIZE):
            raise Failed(f"unrolled, output {path} is {list(leaf.shape)}, not [T, N, ...]")
