"""A run's networks as `model.py` and `weights.npz`: plain modules of one library."""

import io
import itertools
import re
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save

from ..backends import build
from ..backends.libraries import Library
from ..backends.naming import normalize_separators, words_of
from ..backends.source import SAFETENSORS, Style
from ..backends.translate import translate
from ..core.agent import Agent
from ..core.families.extension import Extended
from ..core.loop.frozen import num_masked
from ..core.network import Network
from ..core.networks.architecture import NetworkSpec
from ..core.networks.combinators import part_of
from ..core.specs import Box, Discrete, MultiDiscrete
from ..runs.load import MEAN, VARIANCE, Run, statistics_of, variables_of
from ..runs.registry.algorithms import ALGORITHMS
from .sources import camel, network_source

MODEL = "model.py"
# What is largest at the greedy action, by the built-in algorithm: one head, or its mean over atoms.
# AlphaZero and MuZero search for it, and IQN draws what its networks read. Files of an algorithm
# that is not listed say that they have no `act`, and why.
LARGEST = {
    "logits": "ppo a2c reinforce impala vmpo sac redq mpo openai_es",
    "q": "dqn pqn r2d2 q_learning monte_carlo dyna_q",
    "quantiles": "qr_dqn",
    "atoms": "c51 rainbow",
    "action": "ddpg td3 crossq tqc",
}
HEADS = {"atoms": "logits"}
GREEDY = {ALGORITHMS[name]: kind for kind, names in LARGEST.items() for name in names.split()}

HEAD = '''"""{title}

Needs {distribution} and NumPy; triglot is not needed. The weights lie beside it in {weights}.
{usage}"""

{attrgetter}from pathlib import Path

{imports}
{reads}

def weights_of(name):
    """Return the arrays of a network by their places in it."""
    return {{
        path.removeprefix(f"{{name}}/"): {array}
        for path, array in WEIGHTS.items()
        if path.startswith(f"{{name}}/")
    }}


'''
NORMALIZE = f'''
def normalize(obs):
    """Scale observations as in the training; the networks read the result."""
    mean, variance = WEIGHTS["{MEAN}"], WEIGHTS["{VARIANCE}"]
    return jnp.clip((obs - mean) * jax.lax.rsqrt(variance + 1e-8), -10.0, 10.0)
'''
SOFTMAX = '''
def softmax(logits):
    """Compute probabilities along the last axis."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
'''
DISCRETE = '''
def act({arguments}):
    """Choose the greedy actions, {dtype} [B{shape}]."""
    {call}
    return {action}
'''
CONTINUOUS = '''
LOW = np.array({low}, "{dtype}")
HIGH = np.array({high}, "{dtype}")


def act({arguments}):
    """Choose the greedy actions, {dtype} [B{shape}]."""
    {call}
    {scaled} = {function}({values}).reshape(-1, *LOW.shape)
    return {action}
'''


def model_files(run: Run, seed_index: int, library: Library, title: str) -> dict[str, bytes]:
    """Write `model.py`, which builds a run's networks in one library, and a file of weights.

    An ensemble becomes as many networks, such as `critic_0` and `critic_1`. A single number, such
    as SAC's temperature, is left out.

    Args:
      run: of any library, with built-in networks.
      seed_index: which of its seeds.
      library: the one whose modules are written.
      title: of the weights, one sentence.

    Returns:
      The files' contents by their names.

    Raises:
      TriglotError: if the library is not installed, or it lacks a layer.
    """
    style, specs = library.load_style(), specs_of(run)
    weights: dict[str, np.ndarray] = {}
    for name, spec in specs.items():
        weights.update(_native_weights(run, seed_index, name, spec, library))
    weights.update(statistics_of(run, seed_index))
    modules = "\n\n".join(network_source(name, spec, library) for name, spec in specs.items())
    entries = {
        member: style.entry.format(name=name, class_name=camel(name))
        for name, spec in specs.items()
        for member in _members(name, spec)
    }
    networks = "".join(f'    "{name}": {source},\n' for name, source in entries.items())
    usage = [f"\n`apply(NAME, *inputs)` applies a network: {', '.join(entries)}."]
    if MEAN in weights:
        usage.append("They read `normalize(obs)`.")
    if any(len(spec.inputs) > 1 for spec in specs.values()):
        usage.append("An `action` that a network reads is scaled to [-1, 1].")
    if cells := [spec.cell for spec in specs.values() if spec.cell]:
        names = ", ".join(cells[0].initial_carry(1))
        usage.append(
            f"A recurrent network takes and returns a carry, a dictionary of {names}, float32 "
            f"[B, {cells[0].size}]; zeros where an episode starts."
        )
    acting = _act(run, seed_index, specs, MEAN in weights)
    usage.append("`act(obs, ...)` chooses the greedy actions." if acting else without_act(run))
    head = HEAD.format(
        title=title,
        distribution=library.distribution,
        weights=style.file,
        reads=style.reads,
        array=style.array,
        usage="\n".join(usage) + "\n",
        imports=style.imports,
        attrgetter="from operator import attrgetter\n" if "attrgetter" in style.loader else "",
    )
    text = f"{head}{modules}\n\nNETWORKS = {{\n{networks}}}\n\n{style.loader}"
    more = f"\n{NORMALIZE}" if MEAN in weights else ""
    more += f"\n{acting}" if acting else ""
    for jax_text, native in style.acts.items():
        more = more.replace(jax_text, native)
    if "softmax(" in more and "softmax(" in style.acts.values():
        more = f"\n{SOFTMAX}{more}"
    return {style.file: _written(weights, style), MODEL: f"{text}{more}".encode()}


def without_act(run: Run) -> str:
    """Say that `model.py` has no `act`; empty if it has one."""
    if _largest(run.agent) is not None:
        return ""
    name = re.sub(r"[^\w+]", "?", run.agent.name)  # it goes into Python source
    return (
        f"There is no `act`: which outputs make up the greedy action of {name} is not known. "
        "`triglot export --format stablehlo` writes the whole policy."
    )


def _largest(agent: Agent) -> str | None:
    """Look up what is largest at an agent's greedy action; None for one that is not listed."""
    kind = type(agent.agent if isinstance(agent, Extended) else agent)  # extensions do not act
    return GREEDY.get(f"{kind.__module__}:{kind.__qualname__}")


def _written(weights: dict[str, np.ndarray], style: Style) -> bytes:
    """Write arrays to a file in the style's format."""
    if style.file == SAFETENSORS:
        return save({name: np.ascontiguousarray(array) for name, array in weights.items()})
    file = io.BytesIO()
    np.savez(file, **weights)  # pyright: ignore[reportArgumentType] (names by keyword)
    return file.getvalue()


def specs_of(run: Run) -> dict[str, NetworkSpec]:
    """Describe a run's built-in networks by name, as plain layers, without single numbers."""
    agent: Any = run.agent
    asked = agent.networks(agent.obs_spec, agent.action_spec, agent.config)
    return {name: spec.flat() for name, spec in asked.items() if not isinstance(spec, Network)}


def _members(name: str, spec: NetworkSpec) -> list[str]:
    """Name the members of an ensemble, or the network itself."""
    size = spec.ensemble_size
    return [name] if size == 1 else [f"{name}_{member}" for member in range(size)]


def _native_weights(
    run: Run, seed_index: int, name: str, spec: NetworkSpec, library: Library
) -> dict[str, np.ndarray]:
    """Translate one network's weights, by their names in the plain module."""
    source = run.agent.network.parts[name]
    target = build(library.name, {name: spec}).parts[name]
    variables = part_of(variables_of(run, seed_index), name)
    params = translate(variables, source, target).params
    constants = {
        normalize_separators(f"head/{head}/bias")
        for head, head_spec in spec.heads
        if head_spec.state_independent is not None
    }
    style, named = library.load_style(), dict[str, np.ndarray]()
    codec = target.require_codec("weights cannot be named")
    leaves = jax.tree_util.tree_leaves_with_path(params)
    for (path, array), leaf in zip(leaves, codec.leaves, strict=True):
        place = style.place(words_of(path), leaf.name in constants)
        members = _members(name, spec)
        arrays = [array] if len(members) == 1 else list(array)
        for member, weights in zip(members, arrays, strict=True):
            named[f"{member}/{place}"] = np.asarray(weights)
    return style.complete(named)


def _act(run: Run, seed_index: int, specs: Mapping[str, NetworkSpec], normalizes: bool) -> str:
    """Write the function of the greedy action; empty for a custom algorithm."""
    agent: Any = run.agent
    kind = _largest(agent)
    if kind is None:
        return ""
    action_spec = agent.action_spec
    choices = {"mean", "action"} if isinstance(action_spec, Box) else {HEADS.get(kind, kind)}
    part, head = next(
        (name, head) for name, spec in specs.items() for head, _ in spec.heads if head in choices
    )
    masked, recurrent = num_masked(run.env) is not None, specs[part].cell is not None
    obs = "normalize(obs)" if normalizes else "obs"
    arguments = ["obs", *(["action_mask"] if masked else []), *(["carry"] if recurrent else [])]
    call = f'outputs = apply("{part}", {obs})'
    if recurrent:
        call = f'outputs, carry = apply("{part}", {obs}, carry)'
    values = f'outputs["{head}"]'
    if kind in ("quantiles", "atoms") and isinstance(action_spec, Discrete):
        atoms = agent.config.num_quantiles if kind == "quantiles" else agent.config.num_atoms
        values += f".reshape(-1, {action_spec.num_values}, {atoms})"
        means = {"quantiles": "{}.mean(axis=-1)", "atoms": "jax.nn.softmax({}) @ ATOMS"}
        values = means[kind].format(values)
    values = f"jnp.where(action_mask, {values}, -jnp.inf)" if masked else values
    texts: dict[str, Any] = {"arguments": ", ".join(arguments), "call": call, "dtype": "int32"}
    texts["values"] = values
    texts["shape"] = "".join(f", {size}" for size in action_spec.shape)
    if isinstance(action_spec, Box):
        low, high = action_spec.bounds()
        texts |= {"low": low.tolist(), "high": high.tolist(), "dtype": action_spec.dtype}
        texts |= {"scaled": "unit", "function": "jnp.tanh"}
        action = "LOW + (unit + 1.0) * 0.5 * (HIGH - LOW)"
        if getattr(agent.config, "bounds", None) == "clip":
            texts |= {"scaled": "mean", "function": ""}
            action = "jnp.clip(mean, LOW, HIGH)"
    elif isinstance(action_spec, MultiDiscrete):
        ends = list(itertools.accumulate(action_spec.num_values))[:-1]
        chosen = f"[jnp.argmax(part, axis=-1) for part in jnp.split({values}, {ends}, axis=-1)]"
        action = f"jnp.stack({chosen}, axis=-1)"
    else:
        action = f"jnp.argmax({values}, axis=-1)"
    text = (CONTINUOUS if isinstance(action_spec, Box) else DISCRETE).format(
        **texts, action=f"{action}, carry" if recurrent else action
    )
    if kind != "atoms":
        return text
    hyper = jax.tree.map(lambda leaf: float(leaf[seed_index]), run.agent_states.hyper)
    atoms = f"np.linspace({hyper.v_min}, {hyper.v_max}, {agent.config.num_atoms})"
    return f'\nATOMS = {atoms}.astype("float32")\n\n{text}'
