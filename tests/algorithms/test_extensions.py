"""Extensions: rewards and losses by hand, any algorithm extended, and what is refused."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot import nn, rl
from triglot.algorithms.extensions.contrast import Contrast, ContrastConfig
from triglot.algorithms.extensions.counts import Counts, CountsConfig, CountsState
from triglot.algorithms.extensions.rnd import RND, RNDConfig, RNDState
from triglot.backends import build
from triglot.core.errors import TriglotError
from triglot.core.families.extension import Extended
from triglot.core.options import replace_options
from triglot.core.trainers import make_trainer
from triglot.runs.identity import learned
from triglot.runs.registry.algorithms import ALGORITHMS, find_algorithm

OBS = rl.Box((2,))
SMALL = {"num_envs": 2, "rollout_length": 4}
CARTPOLE = "gymnax:CartPole-v1"


@dataclass(frozen=True)
class Hyper:
    """The hyperparameters that the extensions read."""

    counts_coef: float = 2.0
    rnd_coef: float = 3.0
    rnd_discount: float = 0.5
    rnd_learning_rate: float = 0.01
    rnd_gae_lambda: float = 0.95


def trajectory(next_obs: Any, first: Any = None) -> rl.Trajectory:
    """Make a rollout `[T, N]` of reward 1."""
    next_obs = jnp.asarray(next_obs, jnp.float32)
    shape = next_obs.shape[:2]
    no = jnp.zeros(shape, bool)
    return rl.Trajectory(
        obs=next_obs, first=no if first is None else jnp.asarray(first), action_mask=None,
        action=jnp.zeros(shape, jnp.int32), reward=jnp.ones(shape), terminated=no, truncated=no,
        next_obs=next_obs, next_action_mask=None, extras={}, carry=(),
    )  # fmt: skip


LEFT, RIGHT = [0.0, 1.0], [1.0, 0.0]  # on two sides of the projection [1, -1]


@pytest.mark.parametrize(
    ("episodic", "visits"),
    [
        # By the order of the steps; both environments count a step before either is rewarded.
        (False, [[1, 1], [3, 3], [2, 4]]),
        # Environment 1 begins an episode at the last step.
        (True, [[1, 1], [2, 1], [1, 1]]),
    ],
)
def test_counts_by_hand(episodic: bool, visits: Any) -> None:
    config = CountsConfig(counts_bits=1, counts_episodic=episodic)
    counts = Counts(network=None, obs_spec=OBS, config=config)
    state = counts.init(jax.random.key(0), 2, Hyper())
    state = replace(state, projection=jnp.array([[1.0], [-1.0]]), bias=jnp.zeros(1))
    steps = trajectory(
        [[LEFT, RIGHT], [LEFT, LEFT], [RIGHT, LEFT]],
        [[False, False], [False, False], [False, True]],
    )
    after, state, metrics = counts.update(state, steps, jax.random.key(1), Hyper())
    bonus = 1 / np.sqrt(np.array(visits, np.float32))
    np.testing.assert_allclose(after.reward, 1 + 2.0 * bonus, rtol=1e-6)
    np.testing.assert_allclose(metrics["reward"], bonus.mean(), rtol=1e-6)
    assert isinstance(state, CountsState) and state.table.sum() == (4 if episodic else 6)


def uniform_states(low: Any, high: Any) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(low, high, (2000, len(low))).astype(np.float32)


ANGLES = uniform_states([-np.pi], [np.pi])[:, 0]


@pytest.mark.covering(4)
@pytest.mark.parametrize(
    ("states", "least"),
    [
        (uniform_states([-5.0], [5.0]), 8),
        (uniform_states([1000.0], [1001.0]), 8),  # one number of one sign
        (uniform_states([-1.2, -0.07], [0.6, 0.07]), 40),  # MountainCar's
        (np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1), 16),  # a pendulum's
        (uniform_states([-2.4, -3, -0.2, -3], [2.4, 3, 0.2, 3]), 100),  # CartPole's
        (np.eye(64, dtype=np.float32)[np.arange(2000) % 64], 60),  # the cells of a grid
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_observations_have_many_hashes(states: np.ndarray, least: int, seed: int) -> None:
    """The number of distinct counts grows with what there is to see, on any scale."""
    spec, config = rl.Box((states.shape[1],)), CountsConfig(counts_bits=16)
    counts = Counts(network=None, obs_spec=spec, config=config)
    update = jax.jit(lambda state, steps: counts.update(state, steps, key, Hyper()))
    key = jax.random.key(seed)
    found = []
    for order in (states, states[::-1] * 100.0):
        start = counts.init(key, 4, Hyper())
        _, after, _ = update(start, trajectory(order.reshape(500, 4, -1)))
        assert after.table.sum() == 2000
        found.append(int((after.table > 0).sum()))
    assert found[0] >= least
    # The unit of a number does not matter, nor the order, but for rounding.
    np.testing.assert_allclose(*found, rtol=0.05)


def test_a_hash_is_the_sides_of_hyperplanes_by_numpy() -> None:
    counts = Counts(network=None, obs_spec=OBS, config=CountsConfig(counts_bits=5))
    state, rng = counts.init(jax.random.key(3), 2, Hyper()), np.random.default_rng(0)
    np.testing.assert_allclose(np.linalg.norm(state.projection, axis=0), 1.0, rtol=1e-6)
    first, second = rng.normal(3.0, [1.0, 50.0], (2, 8, 2, 2))
    table = np.zeros(32)
    for seen, all_seen in ((first, first), (second, np.stack([first, second]))):
        _, state, _ = counts.update(state, trajectory(seen), jax.random.key(1), Hyper())
        flat, known = seen.reshape(-1, 2), all_seen.reshape(-1, 2)
        scaled = (flat - known.mean(axis=0)) / known.std(axis=0)
        bits = scaled @ np.asarray(state.projection) - np.asarray(state.bias) > 0
        np.add.at(table, (bits * 2 ** np.arange(5)).sum(axis=1), 1)
    np.testing.assert_array_equal(state.table, table)


def make_rnd() -> tuple[RND, RNDState]:
    config = RNDConfig(rnd_hidden_sizes=(8,), rnd_embedding_size=3)
    network = build("jax", RND.networks(OBS, rl.Discrete(2), config), arithmetic="canonical")
    rnd = RND(network=network, obs_spec=OBS, config=config)
    return rnd, rnd.init(jax.random.key(0), 2, Hyper())


@pytest.mark.slow
def test_the_reward_of_rnd_by_hand() -> None:
    rnd, state = make_rnd()
    seen = np.array([[[1.0, 2.0], [3.0, 0.0]], [[1.0, 4.0], [-1.0, 2.0]]], np.float32)
    after, _, metrics = rnd.update(state, trajectory(seen), jax.random.key(1), Hyper())

    flat = seen.reshape(4, 2)
    scaled = (flat - flat.mean(axis=0)) / np.sqrt(flat.var(axis=0) + 1e-8)

    def outputs(name: str, variables: Any) -> np.ndarray:
        return np.asarray(rnd._part(name).apply(variables, jnp.asarray(scaled))[0]["embedding"])

    wanted = outputs("rnd_target", state.target)
    found = outputs("rnd_predictor", state.predictor.variables)
    error = ((found - wanted) ** 2).mean(axis=1).reshape(2, 2)
    returns = np.array([error[0], error[1] + 0.5 * error[0]])  # discounted forward in time
    bonus = error / np.sqrt(returns.var() + 1e-8)
    np.testing.assert_allclose(after.reward, 1 + 3.0 * bonus, rtol=1e-4)
    np.testing.assert_allclose(metrics["loss"], error.mean(), rtol=1e-4)


def test_what_is_seen_often_is_predicted() -> None:
    rnd, state = make_rnd()
    steps = trajectory(jax.random.normal(jax.random.key(2), (8, 2, 2)))
    update = jax.jit(lambda state, key: rnd.update(state, steps, key, Hyper())[1:])
    losses = []
    for number in range(40):
        state, metrics = update(state, jax.random.key(number))
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.2 * losses[0]
    target = rnd.init(jax.random.key(0), 2, Hyper()).target
    assert jax.tree.all(jax.tree.map(np.array_equal, state.target, target))  # it does not learn


ENVS = {"q_learning": "gridworld:3x3", "dyna_q": "gridworld:3x3", "monte_carlo": "gridworld:3x3"}
CONTINUOUS = ("ddpg", "td3", "crossq", "tqc", "redq", "mpo")
EXTENDED = [
    *(f"{name}+rnd" for name in ALGORITHMS if name != "alphazero"),
    "ppo+counts", "dqn+counts", "q_learning+counts", "sac+rnd+counts",
    *(f"{name}+contrast" for name in ALGORITHMS if name not in (*ENVS, "alphazero")),
    "dqn+counts+contrast", "ppo+contrast+rnd",
]  # fmt: skip


@pytest.mark.covering(30)
@pytest.mark.parametrize("name", EXTENDED)
def test_every_algorithm_is_extended(name: str) -> None:
    algorithm = name.partition("+")[0]
    default = "gymnax:Pendulum-v1" if algorithm in CONTINUOUS else CARTPOLE
    env: Any = triglot.make_env(ENVS.get(algorithm, default))
    backend = "table" if algorithm in ENVS and "rnd" not in name else "jax"
    agent = triglot.make_agent(name, env, backend=backend, config={"rollout_length": 8})
    trainer: Any = make_trainer(agent, env)
    state = jax.eval_shape(trainer.init, jax.random.key(0))
    after, metrics = jax.eval_shape(trainer.update, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    for extension in name.split("+")[1:]:
        assert f"{extension}_{'loss' if extension == 'contrast' else 'reward'}" in metrics
    parts = learned(after.agent).params
    assert ("rnd_target" in parts) == ("rnd" in name)


@pytest.mark.slow
def test_a_bonus_reaches_the_agent() -> None:
    env: Any = triglot.make_env(CARTPOLE)
    agent = triglot.make_agent("ppo+counts", env, backend="jax", config=SMALL)
    trainer: Any = make_trainer(agent, env)
    start = jax.jit(trainer.init)(jax.random.key(0))

    def params(coef: float) -> Any:
        hyper = replace_options(start.agent.hyper, {"counts_coef": jnp.float32(coef)})
        after, _ = update(replace(start, agent=replace(start.agent, hyper=hyper)))
        return jax.tree.leaves(after.agent.agent.learner.variables.params)

    update = jax.jit(trainer.update)
    none, again, some = params(0.0), params(0.0), params(1.0)
    assert all(map(np.array_equal, none, again))
    assert not all(map(np.array_equal, none, some))


def test_the_contrast_of_successors_by_hand() -> None:
    contrast = Contrast(network=None, obs_spec=OBS, config=ContrastConfig(contrast_size=4))
    query = np.zeros((1, 2, 4), np.float32)
    query[0, 0, 0], query[0, 1, 0] = 2.0, 4.0
    key = np.zeros((1, 2, 4), np.float32)
    key[0, 0, 0], key[0, 1, 0] = 1.0, 3.0
    # Scores: query * key / sqrt(4); both environments give the second successor the higher one.
    scores = np.array([[1.0, 3.0], [2.0, 6.0]])
    each = np.log(np.exp(scores).sum(axis=1)) - np.diag(scores)
    outputs, following = {"contrast_query": jnp.array(query)}, {"contrast_key": jnp.array(key)}
    loss, metrics = contrast.loss(outputs, following, trajectory(np.zeros((1, 2, 2))), Hyper())
    np.testing.assert_allclose(loss, each.mean(), rtol=1e-6)
    assert metrics["accuracy"] == 0.5


def contrasted(env: str, config: dict[str, Any], backend: str = "jax", **hyper: float) -> Any:
    """Make a trainer of PPO that learns nothing but the auxiliary loss, and its first state."""
    given = {"learning_rate": 0.0, "contrast_learning_rate": 0.01, **hyper}
    agent = triglot.make_agent(
        "ppo+contrast", triglot.make_env(env), backend=backend, config=config, hyper=given
    )
    trainer: Any = make_trainer(agent, triglot.make_env(env))
    return trainer, jax.jit(trainer.init)(jax.random.key(0))


WIDE = {"num_envs": 16, "rollout_length": 8, "hidden_sizes": (16,)}


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["none", "gru", "lstm"])
@pytest.mark.parametrize("shared", [False, True])
def test_an_auxiliary_loss_shapes_the_features_that_act(shared: bool, cell: str) -> None:
    config = {**WIDE, "shared_torso": shared, "cell": cell, "cell_size": 16}
    trainer, state = contrasted(CARTPOLE, {**config, "num_minibatches": 1})
    update = jax.jit(trainer.update)
    before = state.agent.agent.learner.variables.params
    found = []
    for _ in range(60):
        state, metrics = update(state)
        found.append((float(metrics["contrast_loss"]), float(metrics["contrast_accuracy"])))
    after = state.agent.agent.learner.variables.params
    assert found[-1][0] < 0.8 * found[0][0] and found[-1][1] > 2 / 16
    changed = jax.tree.map(lambda one, other: not np.array_equal(one, other), before, after)
    named = {jax.tree_util.keystr(path): one for path, one in jax.tree.leaves_with_path(changed)}
    name = "actor_critic" if shared else "actor"
    for path, one in named.items():
        below = "torso" in path or "cell" in path
        mine = "contrast" in path or (below and (shared or f"'{name}'" in path))
        assert one == mine, path


@pytest.mark.slow
def test_a_rate_of_0_leaves_the_agent_alone() -> None:
    trainer, state = contrasted(CARTPOLE, WIDE, contrast_learning_rate=0.0)
    after, _ = jax.jit(trainer.update)(state)
    pair = [one.agent.agent.learner.variables.params for one in (state, after)]
    assert jax.tree.all(jax.tree.map(np.array_equal, *pair))


@pytest.mark.slow
def test_an_auxiliary_loss_reads_what_the_agent_reads() -> None:
    # Pendulum's observations are normalized, by statistics that the first update has not yet.
    trainer, state = contrasted("gymnax:Pendulum-v1", WIDE)
    state, _ = jax.jit(trainer.update)(state)
    obs = jnp.ones((3, 3))
    normalizer = state.agent.agent.normalizer
    np.testing.assert_array_equal(trainer.agent.network_obs(state.agent, obs), normalizer.obs(obs))
    assert not np.array_equal(normalizer.obs(obs), obs)


class Seen(rl.AuxiliaryLoss):
    """Report the outputs of a head, each weighted by its step."""

    name = "seen"
    Config = CountsConfig

    @rl.pytree_dataclass
    class Hyperparams:
        seen_learning_rate: rl.Number = 0.0

    @classmethod
    def heads(cls, obs_spec: Any, action_spec: Any, config: Any) -> Any:
        return {"seen_size": nn.Head()}

    def loss(self, outputs: Any, next_outputs: Any, steps: Any, hyper: Any) -> Any:
        weight = jnp.arange(steps.reward.size, dtype=jnp.float32).reshape(steps.reward.shape)
        both = outputs["seen_size"], next_outputs["seen_size"]
        now, after = (jnp.sum(weight * one) for one in both)
        return now, {"now": now, "after": after}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "r2d2", "pqn"])
def test_an_auxiliary_loss_follows_the_carry(name: str) -> None:
    config = {} if name == "r2d2" else {"cell": "gru"}
    config |= {"cell_size": 5, "hidden_sizes": (6,)}
    env = triglot.make_env(CARTPOLE)
    extended = f"{name}+{__name__}:Seen"
    agent: Any = triglot.make_agent(extended, env, backend="jax", config=config)
    state = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 2)
    draw = jax.random.split(jax.random.key(1), 3)
    carry = jax.tree.map(lambda leaf: leaf + 0.5, agent.initial_carry(state, 2))
    first = np.array([[False, True], [False, False], [True, False]])
    steps = replace(
        trajectory(jax.random.normal(draw[0], (3, 2, 4)), first),
        obs=jax.random.normal(draw[1], (3, 2, 4)),
        carry=carry,
    )
    inner = agent.agent_state(state)
    _, _, metrics = agent.extension.after(
        agent.agent, inner, state.extension, steps, draw[2], state.hyper
    )

    part = agent.network.parts.get("actor", agent.network)
    named = "actor" in agent.network.parts
    variables = inner.learner.variables
    own = nn.part_of(variables, "actor") if named else variables
    kept = carry["actor"] if named else carry
    start = part.initial_carry(own, 2)
    sums = np.zeros(2)
    for step in range(3):
        starts = first[step][:, None]
        before = jax.tree.map(lambda a, b, s=starts: jnp.where(s, a, b), start, kept)
        (now, kept), _ = part.apply(own, (steps.obs[step], before))
        (after, _), _ = part.apply(own, (steps.next_obs[step], kept))
        weight = np.arange(2, dtype=np.float32) + 2 * step
        sums += [(weight * nn.merge_heads(one)["seen_size"]).sum() for one in (now, after)]
    np.testing.assert_allclose([metrics["now"], metrics["after"]], sums, rtol=1e-5)


def test_no_auxiliary_loss_shapes_a_table() -> None:
    words = "contrast adds heads to a network .*q is a table, which has no features"
    with pytest.raises(TriglotError, match=words):
        triglot.make_agent("q_learning+contrast", triglot.make_env("gridworld:3x3"))


class Half(rl.Extension):
    """Halve all rewards."""

    name = "half"

    @rl.pytree_dataclass
    class Hyperparams:
        half_factor: rl.Number = 0.5

    @dataclass(frozen=True)
    class Config:
        """Nothing."""

    def init(self, key: jax.Array, num_envs: int, hyper: Any) -> tuple[()]:
        return ()

    def update(self, state: Any, trajectory: rl.Trajectory, key: jax.Array, hyper: Any) -> Any:
        halved = replace(trajectory, reward=hyper.half_factor * trajectory.reward)
        return halved, state, {"reward": halved.reward.mean()}


@pytest.mark.slow
def test_a_custom_extension() -> None:
    env: Any = triglot.make_env(CARTPOLE)
    agent = triglot.make_agent(f"ppo+{__name__}:Half", env, backend="jax", config=SMALL)
    trainer: Any = make_trainer(agent, env)
    _, metrics = jax.jit(trainer.update)(jax.jit(trainer.init)(jax.random.key(0)))
    assert metrics["half_reward"] == 0.5


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ppo+rdn", "did you mean 'rnd'?"),
        ("pppo+rnd", "did you mean 'ppo'?"),
        ("alphazero+rnd", "AlphaZero plans in the environment itself"),
        ("ppo+rnd+rnd", "both have rnd_"),
        ("ppo+triglot.algorithms.dqn:DQN", "must be a class that inherits rl.Extension"),
    ],
)
def test_what_is_refused(name: str, words: str) -> None:
    with pytest.raises(TriglotError, match=words.replace("?", r"\?").replace("+", r"\+")):
        find_algorithm(name)


def test_an_extended_agent_is_an_agent_that_is_built_twice_alike() -> None:
    env: Any = triglot.make_env(CARTPOLE)
    network = triglot.make_agent("muzero+counts", env, backend="jax").network
    given = {"num_envs": 2}
    one, again = (
        triglot.make_agent("muzero+counts", env, networks=network, config=given) for _ in range(2)
    )
    assert isinstance(one, triglot.Agent) and type(one) is Extended
    assert one == again and hash(one) == hash(again)
    assert one.name == "MuZero+counts" and one.num_envs == 2
    assert one.learns_absorbing_states and not one.plans
    with pytest.raises(TriglotError, match="learning_rate must be"):
        triglot.make_agent("a2c+counts", env, backend="jax", hyper={"learning_rate": -1.0})
    with pytest.raises(TriglotError, match=r"A2C\+counts's counts_coef must be"):
        triglot.make_agent("a2c+counts", env, backend="jax", hyper={"counts_coef": -1.0})
    with pytest.raises(TriglotError, match=r"A2C\+counts's counts_bits must be"):
        triglot.make_agent("a2c+counts", env, backend="jax", config={"counts_bits": 99})


def test_custom_networks_are_given_by_name() -> None:
    env: Any = triglot.make_env(CARTPOLE)
    network = triglot.make_agent("ppo", env, backend="jax").network
    with pytest.raises(TriglotError, match="Missing: rnd_predictor, rnd_target"):
        triglot.make_agent("ppo+rnd", env, networks=network)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo+contrast", "dqn+counts", "a2c+counts+rnd"])
def test_an_extended_agent_passes_its_check(name: str) -> None:
    env: Any = triglot.make_env(CARTPOLE)
    config: dict[str, Any] = {**SMALL, "hidden_sizes": (8,)}
    if "dqn" in name:
        config |= {"buffer_size": 64, "learning_starts": 8, "batch_size": 4}
    agent = triglot.make_agent(name, env, backend="jax", config=config)
    report = triglot.check_agent(agent, env)
    assert report.passed, report


def own_value_rnd(epochs: int) -> tuple[RND, RNDState]:
    config = RNDConfig(rnd_hidden_sizes=(8,), rnd_own_value=True, rnd_value_epochs=epochs)
    network = build("jax", RND.networks(OBS, rl.Discrete(2), config), arithmetic="canonical")
    rnd = RND(network=network, obs_spec=OBS, config=config)
    return rnd, rnd.init(jax.random.key(0), 2, Hyper())


@pytest.mark.slow
def test_intrinsic_returns_go_on_across_episodes_by_numpy() -> None:
    """Environment 0 has two ends; environment 1 is started anew before its third step."""
    rnd, state = own_value_rnd(1)
    num_steps, rng = 4, np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, num_steps, 2, 2)).astype(np.float32)
    next_obs[0, 1], next_obs[2, 1] = obs[1, 1], obs[3, 1]
    first = np.zeros((num_steps, 2), bool)
    first[[1, 2], 0] = True
    first[2, 1] = True
    steps = replace(
        trajectory(next_obs, first),
        obs=jnp.asarray(obs),
        terminated=jnp.zeros((num_steps, 2), bool).at[0, 0].set(True),
        truncated=jnp.zeros((num_steps, 2), bool).at[1, 0].set(True),
    )
    after, later, metrics = rnd.update(state, steps, jax.random.key(1), Hyper())
    np.testing.assert_array_equal(after.reward, steps.reward)

    mean, std = next_obs.reshape(-1, 2).mean(axis=0), next_obs.reshape(-1, 2).std(axis=0)

    def embedding(name: str, variables: Any, seen: Any, head: str) -> np.ndarray:
        scaled = jnp.asarray((seen.reshape(-1, 2) - mean) / np.sqrt(std**2 + 1e-8), jnp.float32)
        found = rnd._part(name).apply(variables, scaled)[0][head]
        return np.asarray(found).reshape(*seen.shape[:2], *found.shape[1:])

    target = embedding("rnd_target", state.target, next_obs, "embedding")
    found = embedding("rnd_predictor", state.predictor.variables, next_obs, "embedding")
    error = ((found - target) ** 2).mean(axis=-1)
    sums = np.zeros_like(error)
    for t in range(num_steps):
        sums[t] = error[t] + 0.5 * (sums[t - 1] if t else 0.0)
    bonus = error / np.sqrt(sums.var() + 1e-8)

    assert state.value is not None and later.value is not None
    value = embedding("rnd_value", state.value.variables, obs, "value")
    successor = embedding("rnd_value", state.value.variables, next_obs, "value")
    wanted = np.zeros((num_steps, 2))
    for n in range(2):
        following = 0.0
        for t in reversed(range(num_steps)):
            is_cut = t == num_steps - 1 or (t, n) == (1, 1)
            next_value = successor[t, n] if is_cut else value[t + 1, n]
            delta = bonus[t, n] + 0.5 * next_value - value[t, n]
            following = delta + 0.5 * 0.95 * (0.0 if is_cut else following)
            wanted[t, n] = following
    np.testing.assert_allclose(after.extras["added_advantage"], 3.0 * wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], (0.5 * wanted**2).mean(), rtol=1e-4)
    assert later.value.num_gradient_steps == 1


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "reinforce", "vmpo", "ppo+counts"])
def test_added_advantages_move_the_policy_and_no_target(algorithm: str) -> None:
    env: Any = triglot.make_env(CARTPOLE)
    config = {**SMALL, "rnd_own_value": True, "rollout_length": 8}
    agent: Any = triglot.make_agent(f"{algorithm}+rnd", env, backend="jax", config=config)
    trainer: Any = make_trainer(agent, env)
    state = jax.jit(trainer.init)(jax.random.key(0))
    _, metrics = jax.jit(trainer.update)(state)
    assert {"rnd_reward", "rnd_loss", "rnd_value_loss", "rnd_value"} <= set(metrics)
    policy = agent.agent if algorithm == "ppo" else None
    if policy is not None:
        steps = replace(trajectory(jnp.ones((3, 2, 4))), extras={})
        variables, numbers = state.agent.agent.learner.variables, (0.9, 0.8)
        value, advantage, target = policy.estimate(variables, steps, *numbers)
        added = rl.with_advantage(rl.with_advantage(steps, jnp.ones((3, 2))), jnp.ones((3, 2)))
        again = policy.estimate(variables, added, *numbers)
        np.testing.assert_allclose(again[1] - advantage, 2.0, rtol=1e-5)
        np.testing.assert_array_equal(again[0], value)
        np.testing.assert_array_equal(again[2], target)


@pytest.mark.parametrize("algorithm", ["dqn", "impala", "sac"])
def test_an_own_value_without_advantages_is_refused(algorithm: str) -> None:
    env: Any = triglot.make_env(CARTPOLE)
    with pytest.raises(triglot.TriglotError, match=r"rnd_own_value.*advantages"):
        triglot.make_agent(f"{algorithm}+rnd", env, backend="jax", config={"rnd_own_value": True})
