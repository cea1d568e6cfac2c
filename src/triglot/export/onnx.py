"""The greedy policy as an ONNX model, converted by jax2onnx and checked with onnxruntime."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from types import ModuleType
from typing import Any

import jax
import numpy as np

from ..backends.naming import words_of
from ..core.errors import TriglotError, describe, require, silenced
from ..core.specs import Box, Dict, sample
from ..core.tracing.jaxprs import evaluate, needed
from ..core.types import PyTree
from ..runs.acting import Acting

FILE, LOADER = "policy.onnx", "load.py"
EXTRA = "onnx"
BATCHES = (1, 64)  # of random inputs, on which a model is checked
TOLERANCE = 1e-4  # of a continuous action, relative to the width of its bounds
SHARE = 0.05  # of discrete actions that may differ, since rounding decides between equal values

HEAD = '''"""{title}

Needs onnxruntime and NumPy. Normalization of observations and scaling of actions are inside.
Written by triglot with {converter}. The last bits differ from JAX's.

{usage}
"""

from pathlib import Path

import numpy as np
import onnxruntime

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.log_severity_level = 3  # errors
SESSION = onnxruntime.InferenceSession(
    Path(__file__).with_name("{file}").read_bytes(), OPTIONS, ["CPUExecutionProvider"]
)
DTYPES = {dtypes}


def named(name, value):
    """Name the arrays of nested dictionaries as the model's inputs."""
    if not isinstance(value, dict):
        return {{name: np.asarray(value, DTYPES[name])}}
    parts = [named(f"{{name}}_{{key}}", value[key]) for key in value]
    return {{key: array for part in parts for key, array in part.items()}}
'''
PLAIN = '''

def policy({arguments}):
    """Choose the greedy actions of a batch."""
    return SESSION.run(None, {{{inputs}}})[0]
'''
RECURRENT = '''

def initial_carry(num):
    """Return the carry of `num` episodes that begin; `first` replaces it by the policy's own."""
    inputs = [each for each in SESSION.get_inputs() if each.name.startswith("carry_")]
    return [np.zeros([num, *each.shape[1:]], DTYPES[each.name]) for each in inputs]


def step({arguments}, carry):
    """Choose the greedy actions of a batch, and return them with the next carry."""
    carry = {{f"carry_{{i}}": array for i, array in enumerate(carry)}}
    actions, *carry = SESSION.run(None, {{{inputs}, **carry}})
    return actions, carry
'''


def check_installed() -> tuple[ModuleType, ModuleType]:
    """Import jax2onnx and onnxruntime.

    Raises:
      MissingExtra: if they are not installed.
    """
    with silenced(logging.WARNING):
        return require("jax2onnx", EXTRA), require("onnxruntime", EXTRA)


def onnx_files(acting: Acting, title: str) -> dict[str, bytes]:
    """Encode `policy.onnx`, and `load.py`, which runs it.

    Args:
      acting: a greedy policy.
      title: of the policy, one sentence.

    Returns:
      The files' contents by their names.

    Raises:
      MissingExtra: if jax2onnx is not installed.
      TriglotError: if the actions are dictionaries, the network cannot be traced for any batch
        size, jax2onnx cannot convert it, or the model acts differently.
    """
    jax2onnx, onnxruntime = check_installed()
    converter = f"jax2onnx {metadata.version('jax2onnx')}"
    if isinstance(acting.agent.action_spec, Dict):
        raise TriglotError(
            "the policy's actions are dictionaries, and a model is written for single arrays only: "
            "use --format stablehlo."
        )
    traced, arguments = acting.for_any_batch(jax.make_jaxpr)
    inputs = named_inputs(acting, arguments)
    carries = [f"next_{name}" for name in inputs if name.startswith("carry_")]
    try:
        # About layers that the policy may not have, and about what is dropped.
        with silenced(logging.WARNING):
            # From the jaxpr, which holds primitives only: while jax2onnx traces a function, it
            # patches `jax.numpy`, and calls names there that JAX 0.10 lacks.
            model = jax2onnx.to_onnx(
                _needed_part(traced),
                list(inputs.values()),
                input_names=list(inputs),
                output_names=["action", *carries],
            ).SerializeToString()
    except Exception as error:  # it raises many types
        raise TriglotError(
            f"{converter} cannot convert the policy: {describe(error)}. Use --format stablehlo."
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    for size in BATCHES:
        _check(acting, session, size, converter)
    return {FILE: model, LOADER: _loader(acting, inputs, title, converter).encode()}


def named_inputs(acting: Acting, trees: Sequence[PyTree]) -> dict[str, PyTree]:
    """Name the arrays among a policy's arguments as the model's inputs, such as `obs_position`."""
    masked = acting.num_actions is not None
    arguments = ["obs", *(["action_mask"] if masked else []), "first", "carry"]
    return {
        "_".join([argument, *words_of(path)]): leaf
        for argument, tree in zip(arguments, trees, strict=False)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _needed_part(traced: Any) -> Callable[..., list[jax.Array]]:
    """Rebuild a function from its trace, without what its results do not depend on.

    Keys that a greedy policy ignores have no counterpart in ONNX.
    """
    jaxpr = traced.jaxpr

    def function(*arrays: jax.Array) -> list[jax.Array]:
        known = dict(zip(jaxpr.constvars, traced.consts, strict=True))
        known |= dict(zip(jaxpr.invars, arrays, strict=True))
        read = evaluate(needed(jaxpr.eqns, jaxpr.outvars), known)
        return [read(variable) for variable in jaxpr.outvars]

    return function


def _check(acting: Acting, session: Any, size: int, converter: str) -> None:
    """Compare the model with the policy on random inputs.

    The converter has errors that raise no exception: with a symbolic batch size, Haiku's LSTM got
    four times the batch size.

    Raises:
      TriglotError: if they act differently.
    """
    policy, described = acting.as_function(size)
    arguments = _random(acting, described, size)
    wanted = jax.tree.leaves(jax.jit(policy)(*arguments))
    feed = {name: np.asarray(leaf) for name, leaf in named_inputs(acting, arguments).items()}
    try:
        results = session.run(None, feed)
        alike = all(map(partial(_alike, acting), results, map(np.asarray, wanted)))
    except Exception:  # a shape that is wrong inside the model; onnxruntime raises many types
        alike = False
    if not alike:
        raise TriglotError(
            f"the model that {converter} wrote acts differently from the run on random "
            "observations: use --format stablehlo."
        )


def _alike(acting: Acting, result: np.ndarray, wanted: np.ndarray) -> bool:
    if result.shape != wanted.shape or result.dtype != wanted.dtype:
        return False
    if not np.issubdtype(result.dtype, np.floating):
        return bool(np.mean(result != wanted) <= SHARE)
    spec: Any = acting.agent.action_spec
    width = np.ptp(spec.bounds()) if isinstance(spec, Box) and spec.bounded else 1.0
    return bool(np.allclose(result, wanted, rtol=TOLERANCE, atol=TOLERANCE * float(width)))


def _random(acting: Acting, described: Sequence[PyTree], size: int) -> list[PyTree]:
    """Draw arguments of the policy; every mask allows an action."""
    keys = jax.random.split(jax.random.key(0), size)
    obs = jax.vmap(lambda key: sample(acting.agent.obs_spec, key))(keys)
    rng = np.random.default_rng(0)

    def draw(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        if leaf.dtype == bool:
            return rng.random(leaf.shape) < 0.5
        return rng.uniform(-1, 1, leaf.shape).astype(leaf.dtype)

    rest = jax.tree.map(draw, list(described[1:]))
    if acting.num_actions is not None:
        spec: Any = acting.agent.action_spec
        counts = np.ravel(spec.num_values)
        rest[0][:, np.cumsum([0, *counts[:-1]])] = True  # the first value of each integer
    return [obs, *rest]


def _loader(acting: Acting, inputs: Mapping[str, PyTree], title: str, converter: str) -> str:
    """Write `load.py`."""
    arguments = ["obs", *(name for name in ("action_mask", "first") if name in inputs)]
    dtypes = {name: str(leaf.dtype) for name, leaf in inputs.items()}
    head = HEAD.format(
        title=title, converter=converter, usage=acting.usage, file=FILE, dtypes=dtypes
    )
    feed = ", ".join(f'**named("{name}", {name})' for name in arguments)
    body = RECURRENT if acting.recurrent else PLAIN
    return head + body.format(arguments=", ".join(arguments), inputs=feed)
