"""What an agent is asked first: is it one, what does it answer, and does it answer alike?"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from ...core import specs
from ...core.agent import PolicyOutput
from ...core.environment import Environment
from ..report import Checklist, Failed, NotApplicable
from ..shared import changed, different, look, no_array, unbatched, unequal, what
from .case import AgentCase

CHECKS: Checklist[AgentCase] = Checklist()


@CHECKS.check(
    "protocol",
    asks="Has it hyper, num_envs, rollout_length, init, initial_carry, act and update?",
    why="the training loop calls these; it compiles the agent in, which therefore is hashed.",
    mend="write a @dataclass(frozen=True) with these as triglot.Agent documents them, and give an "
    "instance: make_agent(algorithm, env), for instance.",
)
def _protocol(case: AgentCase) -> None:
    agent: Any = case.agent
    if isinstance(agent, type):
        raise Failed(f"it is {what(agent)}, not an agent made of it")
    names = ("hyper", "num_envs", "rollout_length", "init", "initial_carry", "act", "update")
    for name in names:
        try:
            getattr(agent, name)
        except AttributeError as error:
            found = "" if f"attribute {name!r}" in str(error) else f" ({error})"
            raise Failed(f"{what(agent)} has no {name}{found}") from None
    for name in ("num_envs", "rollout_length"):
        count = getattr(agent, name)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise Failed(f"its {name} is {count!r}, no whole number of at least 1")
    for name in ("init", "initial_carry", "act", "update"):
        if not callable(getattr(agent, name)):
            raise Failed(f"its {name} is {getattr(agent, name)!r}, no method")
    case.call("hash(agent)", hash, agent)
    if not case.call("agent == agent", lambda: bool(agent == agent)):
        raise Failed("it does not equal itself")


@CHECKS.check(
    "environment",
    asks="Does the environment given with it reset and step?",
    why="an agent is tried by letting it act.",
    mend="run check_environment on it.",
    needs=["protocol"],
)
def _environment(case: AgentCase) -> None:
    if isinstance(case.env, type) or not isinstance(case.env, Environment):
        raise Failed(f"env is {what(case.env)}, no Environment")
    start, spec = case.started, case.env.action_spec
    keys = jax.random.split(case.key(6), case.num_envs)

    def step() -> Any:
        actions = jax.vmap(lambda key: specs.sample(spec, key))(keys)
        return case.vector.step(start, actions, case.key(7))

    case.call("a step of the environment", jax.eval_shape, step)


@CHECKS.check(
    "init",
    asks="Does init(key, num_envs) give a state of JAX arrays only?",
    why="the state is carried through loops, vmapped over seeds and written to disk.",
    mend="jnp.asarray(number, jnp.float32) for numbers; static things are fields of the agent.",
    needs=["protocol"],
)
def _init(case: AgentCase) -> None:
    if found := no_array("state", case.made):
        raise Failed(found)


@CHECKS.check(
    "act",
    asks="Does act return a PolicyOutput whose action, carry and extras fit N environments?",
    why="the environments take the action as it is, and the trajectory stacks the rest.",
    mend="return PolicyOutput(action=..., carry=..., extras={...}): the action as env.action_spec "
    "says, with a leading axis N, the carry as initial_carry makes it.",
    needs=["init", "environment"],
)
def _act(case: AgentCase) -> None:
    carry = case.carry
    if found := no_array("the carry", carry) or unbatched("the carry", carry, case.num_envs):
        raise Failed(f"initial_carry for {case.num_envs} environments: {found}")
    for explore in (True, False):
        output = (case.explored if explore else case.greedy).result
        if not isinstance(output, PolicyOutput):
            raise Failed(f"with explore={explore} it gave a {type(output).__name__}")
        if found := _misfit(case, output):
            raise Failed(f"with explore={explore}, {found}")


def _misfit(case: AgentCase, output: PolicyOutput) -> str:
    """Say what of a decision does not fit; "" where all does."""
    size, spec = case.num_envs, case.env.action_spec
    found = no_array("action", output.action) or unbatched("action", output.action, size)
    if found:
        return f"{found}; the environment takes {spec}"
    for row in range(size):
        action = jax.tree.map(lambda leaf, row=row: np.asarray(leaf[row]), output.action)
        if found := specs.mismatch(spec, action):
            return f"the action of environment {row} is none of {spec}: {found}"
    if found := different("the carry", case.carry, output.carry, weak=True):
        return found
    if not isinstance(output.extras, dict):
        return f"extras is a {type(output.extras).__name__}, no dictionary"
    extras = output.extras
    return no_array("extras", extras) or unbatched("extras", extras, size)


@CHECKS.check(
    "update",
    asks="Does update return (state, metrics), the state as it was made, the metrics scalars?",
    why="updates run in a loop whose types are fixed; metrics are stacked over it.",
    mend="keep shapes and dtypes (x.astype(before.dtype)); reduce metrics to jnp scalars.",
    needs=["act"],
)
def _update(case: AgentCase) -> None:
    answer = case.updated.result
    if not isinstance(answer, tuple) or len(answer) != 2:
        size = f" of {len(answer)}" if isinstance(answer, tuple) else ""
        raise Failed(f"update gave a {type(answer).__name__}{size}, not the pair (state, metrics)")
    state, metrics = answer
    if found := no_array("state", state) or different("state", case.made, state):
        raise Failed(f"by one update, {found}")
    if not isinstance(metrics, dict):
        raise Failed(f"the metrics are a {type(metrics).__name__}, no dictionary")
    for name, value in metrics.items():
        if not isinstance(name, str) or not isinstance(value, jax.Array) or value.ndim:
            raise Failed(f"metric {name!r} is {look(value)}, no JAX scalar []")


@CHECKS.check(
    "repeatable",
    asks="Do init, act and update give the same when called twice alike?",
    why="a run that cannot be repeated cannot be compared or resumed; under jit the first call's "
    "numbers would be kept for ever.",
    mend="draw from the key that is given, not from numpy.random; count in the state, not on self.",
    needs=["update"],
)
def _repeatable(case: AgentCase) -> None:
    found = unequal("state", case.made, case.init(case.key(1)))
    for explore, before in ((True, case.explored), (False, case.greedy)):
        again = case.eager_act(explore)
        found = found or unequal(f"act(explore={explore})", before.result, again.result)
    found = found or unequal("update", case.updated.result, case.eager_update().result)
    if found:
        raise Failed(f"called twice with the same key, {found}")


@CHECKS.check(
    "mutation",
    asks="Do act and update leave their arguments as they were?",
    why="whoever called them still holds them: the loop its state, a replay its trajectories.",
    mend="build new dictionaries and arrays ({**state, ...}, x.at[i].set(...)), never assign into "
    "those given.",
    needs=["update"],
)
def _mutation(case: AgentCase) -> None:
    for call in (case.explored, case.greedy):
        for name, before, after in zip(
            ("state", "carry", "inputs"),
            (case.made, case.carry, case.inputs),
            call.args,
            strict=True,
        ):
            if found := changed(name, before, after):
                raise Failed(f"after act, {found}")
    state, trajectory = case.updated.args
    found = changed("state", case.made, state) or changed("trajectory", case.still, trajectory)
    if found:
        raise Failed(f"after update, {found}")


@CHECKS.check(
    "jit",
    asks="Do init, act and update give compiled what they give eagerly?",
    why="training is compiled as a whole.",
    mend="branch with jnp.where or jax.lax.cond (not `if`) on values; keep shapes fixed.",
    needs=["repeatable", "mutation"],
)
def _jit(case: AgentCase) -> None:
    made = case.jitted_init(case.key(1))
    if found := unequal("state", case.made, made, rtol=1e-4, atol=1e-5):
        raise Failed(f"init eager against compiled, {found}")
    for explore, eager in ((True, case.explored), (False, case.greedy)):
        output = case.jitted_act(case.made, case.carry, case.inputs, case.key(2), explore)
        if found := unequal("decision", eager.result, output, rtol=1e-4, atol=1e-5):
            raise Failed(f"act with explore={explore}, eager against compiled, {found}")
    answer = case.jitted_update(case.made, case.still, case.key(4))
    # An optimizer such as Adam magnifies what rounding made of a gradient near zero.
    if found := unequal("state", case.updated.result[0], answer[0], rtol=1e-2, atol=1e-3):
        raise Failed(f"update eager against compiled, {found}")


@CHECKS.check(
    "mask",
    asks="Does it choose allowed actions only, exploring and greedily?",
    why="an environment may take an action that is not allowed for anything at all.",
    mend="put -inf (or the least float) where view.action_mask is False before choosing.",
    needs=["jit"],
)
def _mask(case: AgentCase) -> None:
    mask = case.inputs.action_mask
    if mask is None:
        raise NotApplicable("the environment has no action mask.")
    num_actions = mask.shape[-1]
    for number in range(8):
        key = case.key(20 + number)
        allowed = jax.random.randint(key, (case.num_envs,), 0, num_actions)
        only = jax.nn.one_hot(allowed, num_actions, dtype=bool)
        inputs = replace(case.inputs, action_mask=only)
        for explore in (True, False):
            output = case.jitted_act(case.made, case.carry, inputs, key, explore)
            if (wrong := np.asarray(output.action != allowed)).any():
                row = int(wrong.argmax())
                raise Failed(
                    f"with explore={explore} it chose action {int(output.action[row])} of "
                    f"{num_actions} where only {int(allowed[row])} was allowed"
                )
