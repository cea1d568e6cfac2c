"""Typical mistakes in Python end in one sentence that names the argument and what was given."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot import Box, Discrete, Learner, TriglotError, make_agent, make_env, train
from triglot.rl import TimeStep, VectorEnvironment, adam, as_float32, first_step

KEY = jax.random.key(0)
CONFIG = {
    "num_envs": 2, "rollout_length": 4, "num_minibatches": 1, "num_epochs": 1, "hidden_sizes": (4,),
}  # fmt: skip
ENV = make_env("probe:two-step")
OTHER = make_env("gymnax:Pendulum-v1")
AGENT: Any = make_agent("ppo", ENV, backend="jax", config=CONFIG)
HYPER = as_float32(AGENT.hyper)
DQN = make_agent("dqn", ENV, backend="jax", config={"hidden_sizes": (4,)})
NETWORK = AGENT.network
VECTOR = VectorEnvironment(ENV, 2)


class Module(linen.Module):
    @linen.compact
    def __call__(self, obs: Any) -> dict[str, Any]:
        return {"logits": linen.Dense(2)(obs), "value": linen.Dense(1)(obs)[..., 0]}


def agent(**options: Any) -> Any:
    return make_agent("ppo", ENV, **{"backend": "jax", "config": CONFIG, **options})


def trained(agent: Any = AGENT, env: Any = ENV, **options: Any) -> Any:
    return train(agent, env, **{"key": KEY, "total_steps": 8, **options})


def evaluated(state: Any, key: Any = KEY, env: Any = ENV, **options: Any) -> Any:
    return triglot.evaluate(AGENT, env, state, key, **options)


def hyper(**changes: Any) -> Any:
    return replace(AGENT.hyper, **changes)


def gymnasium_env() -> Any:
    """Stand for one of Gymnasium's environments, which must not be installed here."""
    return SimpleNamespace(
        reset=lambda: None, step=lambda: None, observation_space=None, action_space=None
    )


def state() -> Any:
    return AGENT.init(KEY, 2)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "a number in place of an environment": (lambda: make_env(3), "make_env takes .*got 3"),
    "no environment": (lambda: make_env(None), "make_env takes the name .*None"),
    "agent and environment swapped": (lambda: make_agent(ENV, "ppo"), "algorithm must be"),  # pyright: ignore
    "a name in place of an environment": (
        lambda: make_agent("ppo", "probe:two-step"),  # pyright: ignore
        r"env must be .*got the text.*make_env\('probe:two-step'\)",
    ),
    "an agent as algorithm": (lambda: make_agent(AGENT, ENV), "algorithm must be .*got a PPO"),
    "another class as algorithm": (lambda: make_agent(dict, ENV), "'dict' .*lacks Config"),
    "no backend": (lambda: agent(backend=None), "backend must be text, got None"),
    "a module as backend": (lambda: agent(backend=linen), "backend must be text"),
    "arithmetic 3": (lambda: agent(arithmetic=3), "arithmetic must be text, got 3"),
    "config of another algorithm": (
        lambda: agent(config=DQN.config),
        "give a PPOConfig.*got a DQNConfig",
    ),
    "hyper and config swapped": (
        lambda: agent(config=AGENT.hyper),
        "give a PPOConfig.*got a PPOHyperparams",
    ),
    "config as text": (lambda: agent(config="num_envs=3"), "give a PPOConfig.*'num_envs=3'"),
    "hyper as text": (lambda: agent(hyper="learning_rate=1"), "give a PPOHyperparams"),
    "text for a number": (
        lambda: agent(hyper={"learning_rate": "1e-3"}),
        "learning_rate .*number.*'1e-3'",
    ),
    "an option in hyper": (
        lambda: agent(hyper={"num_envs": 3}),
        r"num_envs belongs to config, not to hyper: give config=\{'num_envs': 3\}",
    ),
    "a hyperparameter in config": (
        lambda: agent(config={"discount": 0.9}),
        r"discount belongs to hyper, not to config: give hyper=\{'discount': 0.9\}",
    ),
    "a name of another framework": (
        lambda: agent(hyper={"lr": 1e-3}),
        "unknown field 'lr' of PPOHyperparams; did you mean 'learning_rate'",
    ),
    "a list of sizes": (
        lambda: triglot.PPO.Config(hidden_sizes=[4]),  # pyright: ignore
        r"hidden_sizes must be a tuple.*\[4\]",
    ),
    "one size": (lambda: triglot.PPO.Config(hidden_sizes=4), "hidden_sizes must be a tuple.*4"),  # pyright: ignore
    "text for a switch": (
        lambda: triglot.PPO.Config(clip_value="False"),  # pyright: ignore
        "clip_value must be True or False, got 'False'",
    ),
    "a module": (lambda: agent(networks=Module()), "got a Module.*triglot.from_linen"),
    "the class of a module": (lambda: agent(networks=Module), "the class Module.*from_linen"),
    "a name in place of a network": (lambda: agent(networks="linen"), "network 'linen' must have"),
    "a function that makes a network": (
        lambda: agent(networks=lambda obs, action: NETWORK),
        "networks must be .*got the function",
    ),
    "a list of networks": (lambda: agent(networks=[NETWORK]), "networks must be .*a list"),
    "a module by its name": (
        lambda: agent(networks={"actor": Module(), "critic": NETWORK}),
        "'actor'.*from_linen",
    ),
    "a module in the class": (
        lambda: triglot.PPO(Module(), ENV.obs_spec, ENV.action_spec),  # pyright: ignore
        "PPO's network must be .*got a Module.*from_linen",
    ),
    "an environment as spec": (
        lambda: triglot.PPO(NETWORK, ENV, ENV.action_spec),  # pyright: ignore
        "PPO's obs_spec must be a Box",
    ),
    "a dictionary as config of the class": (
        lambda: triglot.PPO(NETWORK, ENV.obs_spec, ENV.action_spec, {"num_envs": 2}),  # pyright: ignore
        "PPO's config must be a PPOConfig, got a dict",
    ),
    "an unknown name in the class's hyper": (
        lambda: triglot.PPO(NETWORK, ENV.obs_spec, ENV.action_spec, AGENT.config, {"lr": 1}),  # pyright: ignore
        "hyperparameter 'lr' of PPO",
    ),
    "a name in place of an agent": (lambda: trained("ppo"), r"got 'ppo'.*make_agent\('ppo', env\)"),
    "the class of an agent": (lambda: trained(triglot.PPO), "agent must be .*the class PPO"),
    "train swapped": (lambda: trained(ENV, AGENT), "agent must be an agent"),
    "an agent without a method": (
        lambda: trained(SimpleNamespace(init=1, act=2)),
        "no initial_carry, update",
    ),
    "the environment's name": (
        lambda: trained(env="probe:two-step"),
        r"env must be .*make_env\('probe:two-step'\)",
    ),
    "Gymnasium's environment": (lambda: trained(env=gymnasium_env()), r"give .*make_env\(env\)"),
    "several environments": (lambda: trained(env=VECTOR), "VectorEnvironment: .*its field `env`"),
    "an environment with other observations": (
        lambda: trained(env=OTHER),
        r"built for the observations .*Pendulum-v1 has float32\[3\]",
    ),
    "key 0": (lambda: trained(key=0), r"key must be a random key.*got 0.*random.key\(0\)"),
    "no key": (lambda: trained(key=None), "key must be a random key.*got None"),
    "a generator of NumPy": (lambda: trained(key=np.random.default_rng(0)), "got a Generator"),
    "several keys": (lambda: trained(key=jax.random.split(KEY)), r"key .*shape \[2\].*key\[0\]"),
    "1e5 steps": (lambda: trained(total_steps=1e5), "got 100000.0: give 100_000"),
    "negative steps": (lambda: trained(total_steps=-1), "total_steps must be at least 1, got -1"),
    "seeds as a list": (lambda: trained(num_seeds=[0, 1]), r"num_seeds must be .*\[0, 1\]"),
    "hyper of another algorithm": (
        lambda: trained(hyper=DQN.hyper),
        "PPO's hyperparameters must be PPOHyperparams.*got a DQNHyperparams",
    ),
    "a negative rate": (
        lambda: trained(hyper={"learning_rate": -1.0}),
        "learning_rate must be .*got -1.0",
    ),
    "a rate of NaN": (
        lambda: trained(hyper=hyper(learning_rate=math.nan)),
        "learning_rate must be .*got nan",
    ),
    "a negative rate of one seed": (
        lambda: trained(num_seeds=2, hyper=hyper(learning_rate=jnp.array([1e-3, -1.0]))),
        "learning_rate must be .*got -1.0",
    ),
    "a list of rates": (
        lambda: trained(num_seeds=2, hyper=hyper(learning_rate=[1e-3, 1e-4])),
        "learning_rate must be a number, got",
    ),
    "a rate of each seed in the agent": (
        lambda: trained(agent(hyper={"learning_rate": jnp.array([1e-3, 1e-4])}), num_seeds=2),
        r"hyper cannot be hashed: learning_rate .*\(2,\).*train\(hyper=",
    ),
    "shard without devices": (lambda: trained(shard="seeds"), "shard='seeds' has no effect"),
    "callback 3": (lambda: trained(callback=3), "callback is called with .*got 3"),
    "a callback of one argument": (lambda: trained(callback=lambda x: x), "callback is called"),
    "every_update 3": (lambda: trained(every_update=3), "every_update is called with .*got 3"),
    "population 3": (lambda: trained(population=3), "population must be .*got 3"),
    "a folder to continue": (
        lambda: trained(key=None, continue_from="runs/a"),
        r"got 'runs/a': give triglot.load_run\('runs/a'\)",
    ),
    "an agent state to continue": (
        lambda: trained(key=None, continue_from=state()),
        "continue_from must be .*got a PolicyGradientState",
    ),
    "no state": (lambda: evaluated(None), "agent_state must be .*got None"),
    "several seeds' states": (
        lambda: evaluated(jax.tree.map(lambda leaf: leaf[None], state())),
        "agent_state must be .*of one seed, got the states of 1",
    ),
    "another agent's state": (
        lambda: evaluated(DQN.init(KEY, 2)),
        "agent_state .*does not fit PPO: .* absent",
    ),
    "environment and state swapped": (lambda: evaluated(ENV, env=state()), "env must be"),
    "evaluate key 0": (lambda: evaluated(state(), 0), "key must be a random key.*got 0"),
    "no episodes": (lambda: evaluated(state(), num_episodes=0), "num_episodes must be .*got 0"),
    "no steps": (lambda: evaluated(state(), max_steps=0), "max_steps must be .*got 0"),
    "a trainer of one environment": (
        lambda: triglot.Trainer(AGENT, ENV),  # pyright: ignore
        "Trainer's env must be a VectorEnvironment",
    ),
    "a trainer of another number": (
        lambda: triglot.Trainer(AGENT, VectorEnvironment(ENV, 3)),
        "3 environments.*num_envs=2",
    ),
    "a chunk of an agent state": (
        lambda: triglot.Trainer(AGENT, VECTOR).train_chunk(state()),
        "takes a RunnerState.*got a PolicyGradientState",
    ),
    "more updates than a chunk": (
        lambda: triglot.Trainer(AGENT, VECTOR, chunk_size=2).train_chunk(
            triglot.Trainer(AGENT, VECTOR, chunk_size=2).init(KEY), 5
        ),
        "num_updates must be at most 2, got 5",
    ),
    "a trainer's key 0": (lambda: triglot.Trainer(AGENT, VECTOR).init(0), "key .*got 0"),  # pyright: ignore
    "a name in a vector": (lambda: VectorEnvironment("x", 2), r"env must be .*make_env\('x'\)"),  # pyright: ignore
    "a module to learn": (lambda: Learner(Module(), adam).init(KEY), "Learner's network"),  # pyright: ignore
    "an optimizer of optax": (
        lambda: Learner(NETWORK, adam(HYPER)).init(KEY, HYPER),  # pyright: ignore
        "optimizer must be a function",
    ),
    "no folder": (lambda: triglot.load_run(None), "folder must be a path, got None"),  # pyright: ignore
    "a network as a file": (lambda: triglot.load_weights(NETWORK, "x"), "path must be a path"),  # pyright: ignore
    "no network to load": (lambda: triglot.load_weights("x", None), "network must be"),  # pyright: ignore
    "a preset for an environment": (lambda: triglot.preset("ppo", ENV), "env must be text"),  # pyright: ignore
    "a shape as obs_spec": (
        lambda: triglot.from_linen(Module(), (4,)),  # pyright: ignore
        r"obs_spec must be a Box.*triglot.Box\(\(4,\)\)",
    ),
    "an environment as obs_spec": (
        lambda: triglot.from_linen(Module(), ENV),  # pyright: ignore
        "obs_spec must be a Box.*env.obs_spec",
    ),
    "nothing to translate": (
        lambda: triglot.translate(None, NETWORK, NETWORK),  # pyright: ignore
        "translate takes Variables of source, got None",
    ),
    "another network's variables": (
        lambda: triglot.translate(DQN.init(KEY, 2).learner.variables, NETWORK, NETWORK),
        "not those of the source",
    ),
    "networks as a list": (lambda: triglot.combine([NETWORK]), "combine takes .*a list"),  # pyright: ignore
    "a module in combine": (lambda: triglot.combine({"a": Module()}), "combine's 'a'.*Module"),  # pyright: ignore
    "an ensemble of modules": (lambda: triglot.ensemble(Module(), 2), "member .*Module"),  # pyright: ignore
    "a module to freeze": (lambda: triglot.freeze(Module(), "*"), "freeze's network"),  # pyright: ignore
    "freeze 3": (lambda: triglot.freeze(NETWORK, 3), "pattern must be text, got 3"),  # pyright: ignore
    "start from a dictionary": (lambda: triglot.start_from(NETWORK, {}), "Variables.*a dict"),  # pyright: ignore
    "a scalar as text": (lambda: triglot.scalar("x"), "scalar's value .*'x'"),  # pyright: ignore
    "values as text": (lambda: Discrete("2"), "num_values must be an integer, got '2'"),  # pyright: ignore
    "2.0 values": (lambda: Discrete(2.0), "num_values must be an integer, got 2.0"),  # pyright: ignore
    "integers of floats": (lambda: Discrete(2, "float32"), "Discrete takes .*'float32'"),
    "a dtype that is none": (lambda: Box((2,), "flaot32"), "Box takes .*'flaot32'"),
    "a negative size": (lambda: Box((-4,)), "size .*got -4"),
    "a bound as text": (lambda: Box((2,), low="0"), "numbers as `low`, got '0'"),  # pyright: ignore
    "no bound": (lambda: Box((2,), high=None), "numbers as `high`, got None"),  # pyright: ignore
    "a bound of NaN": (lambda: Box((2,), low=math.nan), "low <= high, got nan"),
    "a dictionary of numbers": (lambda: triglot.Dict([1, 2]), "Dict takes"),  # pyright: ignore
}  # fmt: skip


@pytest.mark.parametrize(("make", "says"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        make()


@dataclass(frozen=True)
class Counting:
    """Ends after three steps; subclasses make a mistake each."""

    weights: Any = 1.0
    name = "counting"
    obs_spec = Box((1,))
    action_spec = Discrete(2)

    def reset(self, key: jax.Array) -> Any:
        return first_step(jnp.zeros((), jnp.int32), jnp.zeros(1))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Any:
        return TimeStep(
            state=state + 1,
            obs=jnp.zeros(1),
            reward=jnp.ones(()),
            terminated=state >= 2,
            truncated=jnp.zeros((), bool),
        )


class IntegerReward(Counting):
    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Any:
        return replace(super().step(state, action, key), reward=jnp.int32(1))


class RewardVector(Counting):
    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Any:
        return replace(super().step(state, action, key), reward=jnp.ones(1))


class FloatEnds(Counting):
    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Any:
        return replace(super().step(state, action, key), terminated=jnp.ones(()))


class TwoObservations(Counting):
    def reset(self, key: jax.Array) -> Any:
        return replace(super().reset(key), obs=jnp.zeros(2))


class IntegerObservation(Counting):
    def reset(self, key: jax.Array) -> Any:
        return replace(super().reset(key), obs=jnp.zeros(1, jnp.int32))


class Growing(Counting):
    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Any:
        return replace(super().step(state, action, key), obs=jnp.zeros(2))


class ShortMask(Counting):
    def reset(self, key: jax.Array) -> Any:
        return replace(super().reset(key), action_mask=jnp.ones(3, bool))


class Tuples(Counting):
    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Any:
        return jnp.zeros(1), 1.0, False, False, {}


class Branching(Counting):
    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> Any:
        return super().step(state + 1 if action else state, action, key)


class WithoutKey(Counting):
    def step(self, state: jax.Array, action: jax.Array) -> Any:  # pyright: ignore
        return super().step(state, action, KEY)


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (IntegerReward(), r"reward of step of .*float32\[\].*got int32\[\]"),
        (RewardVector(), r"reward of step of .*float32\[\].*got float32\[1\]"),
        (FloatEnds(), r"terminated of step of .*bool\[\].*got float32\[\]"),
        (TwoObservations(), r"obs of reset of .*float32\[1\].*got float32\[2\]"),
        (IntegerObservation(), r"obs of reset of .*float32\[1\].*got int32\[1\]"),
        (Growing(), r"counting changes its shapes: obs is float32\[1\].* and float32\[2\]"),
        (ShortMask(), r"action_mask of reset of .*bool\[2\].*got bool\[3\]"),
        (Tuples(), "step of the environment counting must return a TimeStep, got a tuple"),
        (Branching(), r"counting failed in step: TracerBool.*test_mistakes.py, line"),
        (WithoutKey(), "counting failed in step: TypeError"),
    ],
)
def test_what_an_environment_returns_is_checked_while_it_is_traced(env: Any, says: str) -> None:
    own = make_agent("ppo", env, backend="jax", config=CONFIG)
    trainer = triglot.Trainer(own, VectorEnvironment(env, 2))
    with pytest.raises(TriglotError, match=says):
        trainer.check()


def test_a_sound_environment_passes_it() -> None:
    env: Any = Counting()
    own = make_agent("ppo", env, backend="jax", config=CONFIG)
    triglot.Trainer(own, VectorEnvironment(env, 2)).check()


@pytest.mark.parametrize("weights", [jnp.ones(1), [1.0], {}])
def test_a_field_that_cannot_be_hashed_is_named(weights: Any) -> None:
    env: Any = Counting(weights)
    for use in (lambda: make_agent("ppo", env), lambda: trained(env=env)):
        with pytest.raises(TriglotError, match=r"env is not hashable: .*weights is a"):
            use()


def test_a_key_of_the_older_form_draws_the_same_numbers() -> None:
    trainer = triglot.Trainer(AGENT, VECTOR)
    older, newer = (trainer.init(make(3)) for make in (jax.random.PRNGKey, jax.random.key))
    assert older.key == newer.key
    params = [jax.tree.leaves(one.agent.learner) for one in (older, newer)]
    for one, other in zip(*params, strict=True):
        np.testing.assert_array_equal(one, other)


def test_hyperparameters_are_given_by_name_everywhere() -> None:
    by_name = triglot.PPO(
        NETWORK,
        ENV.obs_spec,
        ENV.action_spec,
        AGENT.config,
        {"discount": np.float32(0.5)},  # pyright: ignore
    )
    assert by_name.hyper.discount == 0.5
    assert by_name.hyper.clip_epsilon == triglot.PPO.Hyperparams().clip_epsilon
    hash(agent(hyper={"discount": jnp.float32(0.5)}))
    state = triglot.Trainer(AGENT, VECTOR).init(KEY, {"discount": 0.25})
    assert float(state.agent.hyper.discount) == 0.25


def test_bounds_may_be_arrays() -> None:
    box = Box((2,), low=np.zeros(2), high=jnp.ones(2))  # pyright: ignore
    assert hash(box) == hash(Box((2,), low=(0.0, 0.0), high=(1.0, 1.0)))
