"""What a network is asked first: is it one, what does it answer, and does it answer alike?"""

from typing import Any

import jax
import numpy as np

from ...core.network import Network, Variables, num_params
from ...core.specs import Box, Dict, Discrete
from ..report import Checklist, Failed, NotApplicable
from ..shared import (
    by_path,
    changed,
    copied,
    different,
    in_short,
    is_inexact,
    is_key,
    look,
    no_array,
    not_finite,
    reused_key,
    unbatched,
    unequal,
    what,
)
from .case import BATCH_SIZE, NetworkCase

CHECKS: Checklist[NetworkCase] = Checklist()

_ADAPTERS = {
    "flax.linen": "from_linen(module, obs_spec)",
    "flax.nnx": "from_nnx(module)",
    "equinox": "from_equinox(module)",
    "haiku": "from_haiku(function, obs_spec)",
}


@CHECKS.check(
    "protocol",
    asks="Is it a triglot Network, with functions where functions belong?",
    why="agents call init, apply, value_and_grad and initial_carry, and read recurrent.",
    mend="build it with from_haiku, from_linen, from_nnx or from_equinox, or fill in "
    "triglot.Network(name=..., backend=..., init=..., apply=...).",
)
def _protocol(case: NetworkCase) -> None:
    network: Any = case.network
    if not isinstance(network, Network):
        raise Failed(f"it is {what(network)}, no Network", _how_to_lift(network))
    for name in ("init", "apply", "value_and_grad", "initial_carry"):
        if not callable(getattr(network, name)):
            raise Failed(f"its {name} is {getattr(network, name)!r}, no function")
    for name, kind in (("recurrent", bool), ("random_start", bool), ("name", str)):
        if not isinstance(getattr(network, name), kind):
            raise Failed(f"its {name} is {getattr(network, name)!r}, no {kind.__name__}")
    several = case.obs_spec if isinstance(case.obs_spec, tuple) else (case.obs_spec,)
    for spec in several or (None,):
        if not isinstance(spec, Box | Discrete | Dict):
            raise Failed(
                f"the obs_spec given with it is {what(spec)}, no Box, Discrete or Dict",
                "give env.obs_spec, or a tuple of specs for several inputs.",
            )


def _how_to_lift(given: Any) -> str:
    kinds = given.__mro__ if isinstance(given, type) else type(given).__mro__
    for kind in kinds:
        for library, call in _ADAPTERS.items():
            if kind.__module__.startswith(library):
                return f"lift it: triglot.{call}."
    return ""


@CHECKS.check(
    "init",
    asks="Does init(key) give Variables of JAX arrays, with floating-point params?",
    why="optimizers, vmap and checkpoints work on arrays; a Python or NumPy number among them "
    "becomes a constant of the compiled program, or fails.",
    mend="return Variables(params=..., state=...) with jnp arrays: what is trained in params, "
    "every other array in state, and keys in neither.",
    needs=["protocol"],
)
def _init(case: NetworkCase) -> None:
    made = case.made
    if not isinstance(made, Variables):
        raise Failed(f"init gave a {type(made).__name__}, no Variables")
    if found := no_array("params", made.params) or no_array("state", made.state):
        raise Failed(found)
    for path, leaf in by_path(made.params).items():
        if not is_inexact(leaf):
            raise Failed(f"params.{path} is {look(leaf)}: it has no gradient, and belongs in state")
    for path, leaf in by_path(made.state).items():
        if is_key(leaf):
            raise Failed(f"state.{path} is a random key: apply gets its key as an argument")
    if not num_params(made.params):
        case.notes.append("it has no parameters, so there is nothing to train.")


@CHECKS.check(
    "carry",
    asks="Does initial_carry give arrays [N, ...] for N environments?",
    why="the carry is put anew where an episode starts, for each environment by itself.",
    mend="build it from num_envs: jnp.zeros((num_envs, hidden_size)), for instance.",
    needs=["init"],
)
def _carry(case: NetworkCase) -> None:
    if not case.network.recurrent:
        raise NotApplicable("the network is not recurrent.")
    for num_envs in (BATCH_SIZE, 2):
        carry = case.initial_carry(num_envs)
        if not jax.tree.leaves(carry):
            raise Failed(f"initial_carry(variables, {num_envs}) holds no arrays: {carry!r}")
        if found := no_array("the carry", carry) or unbatched("the carry", carry, num_envs):
            raise Failed(f"for {num_envs} environments {found}")


@CHECKS.check(
    "apply",
    asks="Does apply run on a batch of observations and return (outputs, state)?",
    why="agents unpack the pair; a recurrent network's outputs are a pair (outputs, carry).",
    mend="return outputs, variables.state; the outputs are a dictionary of heads.",
    needs=["init", "carry"],
)
def _apply(case: NetworkCase) -> None:
    _check_pair(case, case.evaluated)


@CHECKS.check(
    "training",
    asks="Does apply run with train=True and a key, with outputs as in evaluation?",
    why="losses call the network so, and its dropout and running statistics work only there.",
    mend="let apply take `key` and `train` by name, and return the same heads either way.",
    needs=["apply"],
)
def _training(case: NetworkCase) -> None:
    _check_pair(case, case.trained)
    if found := different("outputs", case.evaluated[0], case.trained[0]):
        raise Failed(f"from evaluation to training, {found}")


def _check_pair(case: NetworkCase, answer: Any) -> None:
    if not isinstance(answer, tuple) or len(answer) != 2:
        size = f" of {len(answer)}" if isinstance(answer, tuple) else ""
        raise Failed(f"apply gave a {type(answer).__name__}{size}, not the pair (outputs, state)")
    outputs = answer[0]
    if case.network.recurrent and not (isinstance(outputs, tuple) and len(outputs) == 2):
        raise Failed(
            f"the outputs of a recurrent network are the pair (outputs, carry), and apply gave a "
            f"{type(outputs).__name__}"
        )
    if found := no_array("outputs", outputs) or no_array("the new state", answer[1]):
        raise Failed(found)
    if not jax.tree.leaves(case.heads(outputs)):
        raise Failed(f"apply gave no outputs: {outputs!r}")


@CHECKS.check(
    "batched",
    asks="Do all outputs have the batch as their leading axis?",
    why="agents read outputs [B, ...] row by row; a mean over the batch, or one example only, "
    "trains on nonsense without an error.",
    mend="keep the leading axis: flatten with x.reshape(x.shape[0], -1), reduce over later axes.",
    needs=["apply"],
)
def _batched(case: NetworkCase) -> None:
    if found := unbatched("the output", case.evaluated[0], BATCH_SIZE):
        raise Failed(f"for a batch of {BATCH_SIZE}, {found} (inputs: {in_short(case.inputs)})")


@CHECKS.check(
    "dtype",
    asks="Are parameters and floating-point outputs float32, and no parameter weakly typed?",
    why="other floats are promoted or refused in an agent's loss; an array of weak type becomes a "
    "strong one in the first update, and the program is compiled again.",
    mend="cast heads with .astype(jnp.float32); give jnp.array and jnp.full a dtype.",
    needs=["apply"],
)
def _dtype(case: NetworkCase) -> None:
    outputs = case.heads(case.evaluated[0])
    for where, tree in (("output", outputs), ("parameter", case.made.params)):
        for path, leaf in by_path(tree).items():
            if is_inexact(leaf) and leaf.dtype != np.float32:
                raise Failed(f"the {where} {path} is {look(leaf)}, not float32")
    for path, leaf in by_path(case.made.params).items():
        if leaf.weak_type:
            raise Failed(
                f"the parameter {path} {look(leaf)} is of weak type, as Python numbers are"
            )


@CHECKS.check(
    "finite",
    asks="Are parameters and outputs free of NaN and infinity?",
    why="one NaN spreads to every parameter in one update.",
    mend="look for 0/0, log(0), sqrt of a negative number and softmax over nothing allowed.",
    needs=["apply"],
)
def _finite(case: NetworkCase) -> None:
    outputs = case.heads(case.evaluated[0])
    if found := not_finite("params", case.made.params) or not_finite("outputs", outputs):
        raise Failed(found)


@CHECKS.check(
    "repeatable",
    asks="Do init and apply give the same when called twice alike?",
    why="a run that cannot be repeated cannot be compared or resumed; under jit the first call's "
    "numbers would be kept for ever.",
    mend="draw from the key that is given, not from numpy.random; keep no counters in Python.",
    needs=["training"],
)
def _repeatable(case: NetworkCase) -> None:
    if found := unequal("init", case.made, case.init(case.init_key)):
        raise Failed(f"with the same key twice, {found}")
    for train, before in ((False, case.evaluated), (True, case.trained)):
        again = case.apply(case.made, case.inputs, train=train)
        if found := unequal("apply", before, again):
            raise Failed(f"called twice with train={train} and the same arguments, {found}")


@CHECKS.check(
    "mutation",
    asks="Does apply leave its arguments as they were?",
    why="whoever called it still holds them: old weights, a replay's observations.",
    mend="build new dictionaries and arrays ({**state, ...}, x.at[i].set(...)), never assign into "
    "those given.",
    needs=["training"],
)
def _mutation(case: NetworkCase) -> None:
    for train in (False, True):
        variables, inputs = case.variables, copied(case.inputs)
        call = case.training if train else case.evaluation
        case.call(f"`apply{case.in_words(train)}`", call, variables, inputs)
        found = changed("variables", case.made, variables) or changed("inputs", case.inputs, inputs)
        if found:
            raise Failed(f"after apply with train={train}, {found}")


@CHECKS.check(
    "state",
    asks="Does evaluation return the state as it was?",
    why="statistics that move in evaluation make its results depend on their order.",
    mend="return variables.state where train is False.",
    needs=["apply"],
)
def _state(case: NetworkCase) -> None:
    if found := changed("state", case.made.state, case.evaluated[1]):
        raise Failed(f"by apply with train=False, {found}")


@CHECKS.check(
    "batch-against-single",
    asks="Is each row of a batch what that example alone gives, in evaluation?",
    why="an agent acts on few observations and learns from many: rows that see one another make "
    "its probabilities those of another policy.",
    mend="reduce over later axes only; in evaluation let BatchNorm use its running statistics.",
    needs=["batched", "repeatable"],
)
def _batch_against_single(case: NetworkCase) -> None:
    # A carry that has gone a step differs from row to row, which an initial one may not.
    inputs, outputs = case.inputs, case.evaluated[0]
    if case.network.recurrent:
        inputs = (case.obs, outputs[1])
        outputs, _ = case.apply(case.made, inputs)
    for row in (0, BATCH_SIZE - 1):
        one = slice(row, row + 1)
        alone, _ = case.apply(case.made, jax.tree.map(lambda leaf, one=one: leaf[one], inputs))
        together = jax.tree.map(lambda leaf, one=one: leaf[one], outputs)
        if found := unequal("outputs", together, alone, rtol=1e-4, atol=1e-5):
            raise Failed(f"row {row} in its batch against the same row alone: {found}")


@CHECKS.check(
    "seeds",
    asks="Does another key give other parameters, and the same where random_start is False?",
    why="seeds that start alike are one experiment told several times.",
    mend="pass the key on to the initialisers; random_start=False says that the start is given.",
    needs=["repeatable"],
)
def _seeds(case: NetworkCase) -> None:
    first, second = by_path(case.made.params), by_path(case.init(case.other_key).params)
    same = [path for path in first if not unequal(path, first[path], second.get(path))]
    if not case.network.random_start:
        if len(same) < len(first):
            raise Failed("random_start is False, and two keys give different parameters")
        return
    if first and len(same) == len(first):
        raise Failed(f"two keys give equal parameters in all {len(first)} arrays")
    fixed = [path for path in same if _varies(first[path])]
    if fixed:
        case.notes.append(f"{', '.join(fixed)} start alike for every key, and are not constant.")


@CHECKS.check(
    "key-reuse",
    asks="Is each key used once, and no parameter drawn twice alike?",
    why="layers that share a key start as copies of one another: attention whose keys and values "
    "are the same projection.",
    mend="split the key into as many as there are layers: q, k, v = jax.random.split(key, 3).",
    needs=["repeatable"],
)
def _key_reuse(case: NetworkCase) -> None:
    if case.network.random_start:
        _check_twins(case.made.params)

    def apply(variables: Variables, inputs: Any, key: jax.Array) -> Any:
        return case.network.apply(variables, inputs, key=key, train=True)

    found = reused_key(case.network.init, case.init_key)
    if found := found or reused_key(apply, case.made, case.inputs, case.training_key):
        raise Failed(found)


def _check_twins(params: Any) -> None:
    leaves = [(path, leaf) for path, leaf in by_path(params).items() if _varies(leaf)]
    for index, (path, leaf) in enumerate(leaves):
        for other_path, other in leaves[:index]:
            if leaf.shape == other.shape and np.array_equal(leaf, other):
                raise Failed(
                    f"params.{other_path} and params.{path}, {look(leaf)} each, start with equal "
                    "numbers: they were drawn with one key (or are one layer held twice)"
                )


def _varies(leaf: Any) -> bool:
    values = np.asarray(leaf)
    return values.size > 1 and bool((values != values.flat[0]).any())
