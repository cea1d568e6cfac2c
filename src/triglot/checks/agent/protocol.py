"""Checks of an agent's interface: its attributes, and what each of its methods returns."""

from typing import Any

import jax
import numpy as np

from ...core import specs
from ...core.agent import PolicyOutput
from ...core.environment import Environment
from ...core.loop.vectorize import Transition, VectorState
from ..members import check_hashable, check_members, check_pair
from ..purity import attempt
from ..report import Checklist, Failed, describe_value, reject
from ..trees import find_non_array, find_unbatched
from .case import AgentCase

CHECKS: Checklist[AgentCase] = Checklist()

MEMBERS: dict[str, type | str] = {
    "hyper": object,
    "num_envs": int,
    "rollout_length": int,
    "init": "key, num_envs",
    "initial_carry": "state, num_envs",
    "act": "state, carry, inputs, key, *, explore",
    "update": "state, trajectory, key",
    "online": bool,
    "explores_by_parameters": bool,
    "bootstraps": bool,
    "plans": bool,
    "two_players": bool,
    "learns_estimates": bool,
    "learns_absorbing_states": bool,
    "learns_from_next_obs": bool,
    "learns_otherwise": str,
    "name": str,
    "for_environment": "options",
}


@CHECKS.check()
def _protocol(case: AgentCase) -> None:
    """Does it have the members of triglot.Agent that training needs, and can it be hashed?

    Why: The training loop calls these, and the compilation cache looks the agent up by its hash.

    Fix: Write a @dataclass(frozen=True) with the members that triglot.Agent documents (inherit
    triglot.AgentBase for defaults), and pass an instance, e.g. make_agent(algorithm, env).
    """
    agent: Any = case.agent
    if isinstance(agent, type):
        raise Failed(f"it is {describe_value(agent)}; expected an instance of it.")
    check_members(agent, MEMBERS)
    check_hashable("it", agent)


@CHECKS.check(needs=["protocol"])
def _environment(case: AgentCase) -> None:
    """Do reset and step of the given environment work?

    Why: The agent is tried in it.

    Fix: Run check_environment on it.
    """
    if isinstance(case.env, type) or not isinstance(case.env, Environment):
        raise Failed(f"env is {describe_value(case.env)}; expected an Environment.")
    start, spec = case.started, case.env.action_spec
    keys = jax.random.split(case.key(6), case.num_envs)

    def step() -> tuple[VectorState, Transition]:
        actions = jax.vmap(lambda key: specs.sample(spec, key))(keys)
        return case.vector.step(start, actions, case.key(7))

    attempt("a step of the environment", jax.eval_shape, step)


@CHECKS.check(needs=["protocol"])
def _init(case: AgentCase) -> None:
    """Does init(key, num_envs) return a state of JAX arrays?

    Why: The state is carried through loops, vmapped over seeds and saved in checkpoints.

    Fix: Use jnp.asarray(number, jnp.float32) for numbers; keep static settings in fields of the
    agent.
    """
    reject(find_non_array("state", case.initial_state))


@CHECKS.check(needs=["init", "environment"])
def _act(case: AgentCase) -> None:
    """Does act return a PolicyOutput with a valid action and extras for N environments?

    Why: The environments take the action, and the trajectory stacks the extras.

    Fix: Return PolicyOutput(action=..., carry=..., extras={...}): the action must match
    env.action_spec with a leading axis N, the carry must have that axis too.
    """
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
    if problem := find_unbatched("action", output.action, size):
        return f"{problem}, for {spec}"
    for row in range(size):
        action = jax.tree.map(lambda leaf, row=row: np.asarray(leaf[row]), output.action)
        if problem := specs.mismatch(spec, action):
            return f"the action of environment {row} is not in {spec}: {problem}"
    if problem := find_non_array("the carry", output.carry):
        return problem
    extras = output.extras
    if not isinstance(extras, dict):
        return f"extras is {describe_value(extras)}; expected a dictionary"
    return find_unbatched("extras", extras, size)


@CHECKS.check(needs=["act"])
def _update(case: AgentCase) -> None:
    """Does update return a new state and a dictionary of scalar metrics?

    Why: Updates run in a compiled loop; metrics are stacked over it.

    Fix: Return (state, metrics), with each metric reduced to a jnp scalar.
    """
    result = case.update.result
    check_pair("update", result, "(state, metrics)")
    state, metrics = result
    reject(find_non_array("state", state), "after one update, ")
    if not isinstance(metrics, dict):
        raise Failed(f"the metrics are {describe_value(metrics)}; expected a dictionary.")
    for name, value in metrics.items():
        if not isinstance(name, str) or not isinstance(value, jax.Array) or value.ndim:
            raise Failed(f"metric {name!r} is {describe_value(value)}; expected a JAX scalar [].")
