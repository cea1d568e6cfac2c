"""Agents with one defect each, by the check that must find it."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.checks import n_step_sarsa as sarsa
from tests.checks.sound_agent import ENV, ActorCritic, Masked, Numbers, linear
from triglot import make_agent
from triglot.core.agent import PolicyInput, PolicyOutput, Trajectory


@dataclass(frozen=True)
class Broken:
    """An agent in an environment, and the check that should fail."""

    check: str
    agent: Any
    env: Any = ENV
    words: str = ""
    also: tuple[str, ...] = ()  # other checks that find it

    @property
    def defect(self) -> str:
        """Say what is wrong, as the class documents it."""
        return str(type(self.agent).__doc__ or self.agent)


@dataclass(frozen=True)
class NoUpdate:
    """It cannot learn, having no update."""

    hyper: Any = ()
    num_envs: int = 2
    rollout_length: int = 4
    init = ActorCritic.init
    initial_carry = ActorCritic.initial_carry
    act = ActorCritic.act


class Unhashable(ActorCritic):
    """It cannot be hashed."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]


@dataclass(frozen=True)
class BrokenEnv(Masked):
    """Its reset fails."""

    def reset(self, key: jax.Array) -> Any:
        raise RuntimeError("no map was loaded")


class PythonNumber(ActorCritic):
    """A Python number in the state."""

    def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
        return {**super().init(key, num_envs, hyper), "epsilon": 0.1}


class FloatActions(ActorCritic):
    """Actions of the wrong dtype."""

    def act(
        self, state: Any, carry: Any, inputs: PolicyInput, key: Any, *, explore: bool
    ) -> PolicyOutput:
        output = super().act(state, carry, inputs, key, explore=explore)
        return replace(output, action=output.action.astype(jnp.float32))


class OutOfBounds(ActorCritic):
    """Actions that the environment does not have."""

    def act(
        self, state: Any, carry: Any, inputs: PolicyInput, key: Any, *, explore: bool
    ) -> PolicyOutput:
        output = super().act(state, carry, inputs, key, explore=explore)
        return replace(output, action=output.action + 2)


class GrowingMemory(ActorCritic):
    """A carry that grows with every step."""

    def initial_carry(self, state: Any, num_envs: int) -> Any:
        return jnp.zeros((num_envs, 1))

    def act(
        self, state: Any, carry: Any, inputs: PolicyInput, key: Any, *, explore: bool
    ) -> PolicyOutput:
        output = super().act(state, carry, inputs, key, explore=explore)
        return replace(output, carry=jnp.concatenate([carry, carry], axis=-1))


class HalfParams(ActorCritic):
    """Parameters that come back from update in half precision."""

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        state, metrics = super().update(state, trajectory, key)
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), state["params"])
        return {**state, "params": half}, metrics


class MetricPerStep(ActorCritic):
    """A metric that is no scalar."""

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        state, metrics = super().update(state, trajectory, key)
        return state, {**metrics, "reward": trajectory.reward.mean(axis=1)}


class NumpyNoise(ActorCritic):
    """Exploration by NumPy's random numbers."""

    def logits(self, state: Any, inputs: PolicyInput) -> jax.Array:
        noise = np.random.default_rng().normal(size=2).astype(np.float32)
        return super().logits(state, inputs) + jnp.asarray(noise)[None]


class PoppingExtras(ActorCritic):
    """An update that takes the extras out of the trajectory."""

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        trajectory.extras.pop("logits")
        return super().update(state, trajectory, key)


class CountingInPlace(ActorCritic):
    """An update that counts in the state it was given."""

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        state["count"] = state["count"] + 1
        return super().update({**state, "count": state["count"] - 1}, trajectory, key)


class PythonBranch(ActorCritic):
    """A Python branch on the reward."""

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        if trajectory.reward.sum() > 1e6:
            return state, {"loss": jnp.zeros(())}
        return super().update(state, trajectory, key)


class MaskIgnored(ActorCritic):
    """It takes no notice of the action mask."""

    def logits(self, state: Any, inputs: PolicyInput) -> jax.Array:
        return super().logits(state, replace(inputs, action_mask=None))


class GreedySampled(ActorCritic):
    """It samples in evaluation too."""

    def act(
        self, state: Any, carry: Any, inputs: PolicyInput, key: Any, *, explore: bool
    ) -> PolicyOutput:
        return super().act(state, carry, inputs, key, explore=True)


@dataclass(frozen=True)
class TiredOfTracing(ActorCritic):
    """Its update keeps count in Python, and gives up when it is traced once more."""

    calls: list[int] = field(default_factory=list, compare=False)

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        self.calls.append(1)
        if len(self.calls) > 6:
            raise RuntimeError("the log file is closed")
        return super().update(state, trajectory, key)


class Normalised(ActorCritic):
    """Rewards divided by their deviation over environments, which may be 0."""

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        reward = trajectory.reward / trajectory.reward.std(axis=1, keepdims=True)
        return super().update(state, replace(trajectory, reward=reward), key)


class WeakState(ActorCritic):
    """A number of weak type, which update makes a strong one."""

    def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
        return {**super().init(key, num_envs, hyper), "epsilon": jnp.asarray(1.0)}

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        state, metrics = super().update(state, trajectory, key)
        return {**state, "epsilon": jnp.asarray(1.0, jnp.float32)}, metrics


class CalledBack(ActorCritic):
    """Parameters that come from the host, by a callback that cannot be batched."""

    def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
        state = super().init(key, num_envs, hyper)
        actor = state["params"]["actor"]
        shape = jax.ShapeDtypeStruct(actor.shape, actor.dtype)
        params = {**state["params"], "actor": jax.pure_callback(lambda x: x, shape, actor)}
        return {**state, "params": params}


class KeyTwice(ActorCritic):
    """One key for the noise and for the choice."""

    def act(
        self, state: Any, carry: Any, inputs: PolicyInput, key: jax.Array, *, explore: bool
    ) -> PolicyOutput:
        logits = self.logits(state, inputs)
        chosen = jnp.argmax(logits, axis=-1)
        if explore:
            noisy = logits + jax.random.normal(key, logits.shape)
            chosen = jax.random.categorical(key, noisy)
        return PolicyOutput(action=chosen.astype(jnp.int32), carry=carry, extras={"logits": logits})


class NamesClash(ActorCritic):
    """Two arrays of one path."""

    def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
        clash = {"a.b": jnp.zeros(()), "a": {"b": jnp.zeros(())}}
        return {**super().init(key, num_envs, hyper), **clash}


class OwnNumbers(ActorCritic):
    """Its init makes nothing of other hyperparameters."""

    def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
        return super().init(key, num_envs, None)


class DiscountLeftOut(ActorCritic):
    """Its state holds the learning rate that was given, and a discount of its own."""

    def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
        own = self.hyper if hyper is None else hyper
        numbers = Numbers(learning_rate=own.learning_rate, discount=self.hyper.discount)
        return super().init(key, num_envs, numbers)


class LearnsNothing(ActorCritic):
    """Its update counts and keeps the last reward, and changes no parameter."""

    def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
        return {**super().init(key, num_envs, hyper), "last": jnp.zeros((num_envs,))}

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        after, metrics = super().update(state, trajectory, key)
        return {**after, "params": state["params"], "last": trajectory.reward[-1]}, metrics


class KeyRebound(ActorCritic):
    """Keys made from a constant, in init and in act."""

    def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
        return super().init(jax.random.key(0), num_envs, hyper)

    def act(
        self, state: Any, carry: Any, inputs: PolicyInput, key: Any, *, explore: bool
    ) -> PolicyOutput:
        return super().act(state, carry, inputs, jax.random.key(0), explore=explore)


class ExplorationRebound(ActorCritic):
    """A key made from a constant, in act only."""

    def act(
        self, state: Any, carry: Any, inputs: PolicyInput, key: Any, *, explore: bool
    ) -> PolicyOutput:
        return super().act(state, carry, inputs, jax.random.key(4), explore=explore)


class TimeLimitsFoldedIn(ActorCritic):
    """No bootstrap wherever an episode is done, be it by a time limit."""

    def bootstrap(self, trajectory: Trajectory, next_value: jax.Array) -> jax.Array:
        return jnp.where(trajectory.terminated | trajectory.truncated, 0.0, next_value)


class FlagsIgnored(ActorCritic):
    """A bootstrap at every step, be it the last."""

    def bootstrap(self, trajectory: Trajectory, next_value: jax.Array) -> jax.Array:
        return next_value


class FlagsInverted(ActorCritic):
    """Terminated and truncated exchanged."""

    def bootstrap(self, trajectory: Trajectory, next_value: jax.Array) -> jax.Array:
        return jnp.where(trajectory.truncated, 0.0, next_value)


class TruncatedZeroed(ActorCritic):
    """Truncated steps teach nothing."""

    def loss(self, params: Any, state: Any, trajectory: Trajectory, key: jax.Array) -> jax.Array:
        _, value = linear(params, trajectory.obs)
        _, next_value = linear(params, trajectory.next_obs)
        follows = self.bootstrap(trajectory, next_value)
        target = jax.lax.stop_gradient(trajectory.reward + state["hyper"].discount * follows)
        return jnp.mean(jnp.where(trajectory.truncated, 0.0, (target - value) ** 2))


BROKEN = [
    Broken("protocol", NoUpdate(), words="has no update"),
    Broken("protocol", Unhashable()),
    Broken("environment", ActorCritic(), BrokenEnv()),
    Broken("init", PythonNumber(), words="epsilon is the Python float 0.1"),
    Broken("act", FloatActions()),
    Broken("act", OutOfBounds()),
    Broken("scan", GrowingMemory(), words="[2, 1] and is float32[2, 2]"),
    Broken("scan", HalfParams()),
    Broken("update", MetricPerStep()),
    Broken("deterministic", NumpyNoise(), words="called twice"),
    Broken("arguments unchanged", PoppingExtras(), words="extras.logits"),
    Broken("arguments unchanged", CountingInPlace()),
    Broken("jit", PythonBranch(), words="jnp.where"),
    Broken("action mask", MaskIgnored(), Masked()),
    Broken("greedy", GreedySampled()),
    Broken("scan", TiredOfTracing()),
    Broken("finite", Normalised()),
    Broken("compiles once", WeakState()),
    Broken("vmap", CalledBack()),
    Broken("keys used once", KeyTwice(), words="broken_agents.py, line"),
    Broken("checkpoint", NamesClash()),
    Broken("hyperparameters", OwnNumbers()),
    Broken("hyperparameters", DiscountLeftOut(), words="hyper.discount"),
    Broken("learns", LearnsNothing()),
    Broken("seeds", KeyRebound()),
    Broken("exploration", ExplorationRebound()),
    Broken("time limits", TimeLimitsFoldedIn(), words="both taken for ends"),
    Broken("time limits", FlagsIgnored(), words="both bootstrapped"),
    Broken("terminal successor", FlagsInverted()),
    Broken("truncated successor", TruncatedZeroed()),
    Broken("later episodes", make_agent(sarsa.EndsTruncated, ENV), words="at terminated ends"),
    Broken("later episodes", make_agent(sarsa.EndsTerminated, ENV), words="at truncated ends"),
    Broken("earlier episodes", make_agent(sarsa.AgeGoesOn, ENV)),
    Broken("last steps", make_agent(sarsa.LastRewardLost, ENV), words="before a terminated end"),
    Broken("last steps", make_agent(sarsa.Broadcast, ENV)),
    Broken("successors", make_agent(sarsa.Residual, ENV), also=("terminal successor",)),
    Broken("discount", make_agent(sarsa.DiscountedTwice, ENV), words="twice"),
    Broken("discount", make_agent(sarsa.DiscountForgotten, ENV), words="not multiplied"),
    Broken(
        "next action mask",
        make_agent(sarsa.NextMaskForgotten, Masked()),
        Masked(),
        also=("acting",),
    ),
    Broken("entropy", make_agent(sarsa.EntropyFought, ENV, config={"num_envs": 2})),
]
