"""Checks of an agent's interface: its attributes, and what each of its methods returns."""

from typing import Any

import jax
import numpy as np

from ...core import specs
from ...core.agent import PolicyOutput
from ...core.environment import Environment
from ..messages import describe_value
from ..purity import attempt
from ..report import Checklist, Failed, reject
from ..trees import find_non_array, find_unbatched
from .case import AgentCase

CHECKS: Checklist[AgentCase] = Checklist()


@CHECKS.check(
    question="Does it have the members of triglot.Agent that training needs, and can it be hashed?",
    why="The training loop calls these, and the compilation cache looks the agent up by its hash.",
    fix="Write a @dataclass(frozen=True) with the members that triglot.Agent documents (inherit "
    "triglot.AgentBase for defaults), and pass an instance, e.g. make_agent(algorithm, env).",
)
def _protocol(case: AgentCase) -> None:
    agent: Any = case.agent
    if isinstance(agent, type):
        raise Failed(f"it is {describe_value(agent)}; expected an instance of it.")
    methods = ("init", "initial_carry", "act", "update")
    flags = ("online", "explores_by_parameters", "bootstraps")
    for name in ("hyper", "num_envs", "rollout_length", *methods, *flags):
        try:
            getattr(agent, name)
        except AttributeError as error:
            found = "" if f"attribute {name!r}" in str(error) else f" ({error})"
            raise Failed(f"{describe_value(agent)} has no {name}{found}.") from None
    for name in ("num_envs", "rollout_length"):
        count = getattr(agent, name)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise Failed(f"its {name} is {count!r}; expected an integer of at least 1.")
    for name in flags:
        if not isinstance(getattr(agent, name), bool):
            raise Failed(f"its {name} is {getattr(agent, name)!r}; expected True or False.")
    for name in methods:
        if not callable(getattr(agent, name)):
            raise Failed(f"its {name} is {getattr(agent, name)!r}; expected a method.")
    attempt("hash(agent)", hash, agent)
    if not attempt("agent == agent", lambda: bool(agent == agent)):
        raise Failed("it is not equal to itself.")


@CHECKS.check(
    question="Do reset and step of the given environment work?",
    why="The agent is tried in it.",
    fix="Run check_environment on it.",
    needs=["protocol"],
)
def _environment(case: AgentCase) -> None:
    if isinstance(case.env, type) or not isinstance(case.env, Environment):
        raise Failed(f"env is {describe_value(case.env)}; expected an Environment.")
    start, spec = case.started, case.env.action_spec
    keys = jax.random.split(case.key(6), case.num_envs)

    def step() -> Any:
        actions = jax.vmap(lambda key: specs.sample(spec, key))(keys)
        return case.vector.step(start, actions, case.key(7))

    attempt("a step of the environment", jax.eval_shape, step)


@CHECKS.check(
    question="Does init(key, num_envs) return a state of JAX arrays?",
    why="The state is carried through loops, vmapped over seeds and saved in checkpoints.",
    fix="Use jnp.asarray(number, jnp.float32) for numbers; keep static settings in fields of the "
    "agent.",
    needs=["protocol"],
)
def _init(case: AgentCase) -> None:
    reject(find_non_array("state", case.made))


@CHECKS.check(
    question="Does act return a PolicyOutput with a valid action and extras for N environments?",
    why="The environments take the action, and the trajectory stacks the extras.",
    fix="Return PolicyOutput(action=..., carry=..., extras={...}): the action must match "
    "env.action_spec with a leading axis N, the carry must have that axis too.",
    needs=["init", "environment"],
)
def _act(case: AgentCase) -> None:
    carry, size = case.carry, case.num_envs
    reject(find_unbatched("the carry", carry, size), f"initial_carry for {size} environments: ")
    for explore, call in case.acts.items():
        output = call.result
        if not isinstance(output, PolicyOutput):
            raise Failed(
                f"with explore={explore} it returned {describe_value(output)}; expected a "
                "PolicyOutput."
            )
        reject(_find_mismatch(case, output), f"with explore={explore}, ")


def _find_mismatch(case: AgentCase, output: PolicyOutput) -> str:
    size, spec = case.num_envs, case.env.action_spec
    if found := find_unbatched("action", output.action, size):
        return f"{found}, for {spec}"
    for row in range(size):
        action = jax.tree.map(lambda leaf, row=row: np.asarray(leaf[row]), output.action)
        if found := specs.mismatch(spec, action):
            return f"the action of environment {row} is not in {spec}: {found}"
    if found := find_non_array("the carry", output.carry):
        return found
    extras = output.extras
    if not isinstance(extras, dict):
        return f"extras is {describe_value(extras)}; expected a dictionary"
    return find_unbatched("extras", extras, size)


@CHECKS.check(
    question="Does update return a new state and a dictionary of scalar metrics?",
    why="Updates run in a compiled loop; metrics are stacked over it.",
    fix="Return (state, metrics), with each metric reduced to a jnp scalar.",
    needs=["act"],
)
def _update(case: AgentCase) -> None:
    result = case.update.result
    if not isinstance(result, tuple) or len(result) != 2:
        raise Failed(
            f"update returned {describe_value(result)}; expected the pair (state, metrics)."
        )
    state, metrics = result
    reject(find_non_array("state", state), "after one update, ")
    if not isinstance(metrics, dict):
        raise Failed(f"the metrics are {describe_value(metrics)}; expected a dictionary.")
    for name, value in metrics.items():
        if not isinstance(name, str) or not isinstance(value, jax.Array) or value.ndim:
            raise Failed(f"metric {name!r} is {describe_value(value)}; expected a JAX scalar [].")
