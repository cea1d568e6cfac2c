"""pgx's own AlphaZero and triglot's, on pgx's network, at the same number of moves.

The script is that of pgx's repository, in `examples/alphazero`. What is trained already is read
from `--out`. An hour and a half on one core.

python -m benchmarks.peers.pgx_alphazero pgx/examples/alphazero
"""

import functools
import importlib
import os
import pickle
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import pgx
import tyro

from triglot import from_haiku, load_run, nn, rl
from triglot.core.specs import Discrete, Spec
from triglot.core.types import PyTree
from triglot.core.wrappers.games import random_player

from ..published import finished, train
from .contender import import_files

Net: TypeAlias = Callable[[PyTree, jax.Array], tuple[jax.Array, jax.Array]]
"""Gives the logits `[N, num_actions]` and the value `[N]` of observations, from variables."""
Loop: TypeAlias = tuple[pgx.State, jax.Array, jax.Array]
"""Of a match: the games, the first player's score `[N]`, and the next key."""
GAME = "connect_four"
NUM_SIMULATIONS = 16
SETTING = {
    "env_id": GAME,
    "num_channels": 16,
    "num_layers": 2,
    "selfplay_batch_size": 128,
    "num_simulations": NUM_SIMULATIONS,
    "max_num_steps": 64,
    "training_batch_size": 256,
}
NUM_MOVES = 262_144  # of both players: triglot's preset's environment steps
MOVES_PER_ITERATION = SETTING["selfplay_batch_size"] * SETTING["max_num_steps"]


def main(
    script: tyro.conf.Positional[Path],
    out: Path = Path("runs/pgx_alphazero"),
    num_seeds: int = 5,
    num_games: int = 512,
) -> None:
    """Train both from each seed, and let them play each other.

    Args:
      script: the folder of pgx's script.
      out: the folder of what is trained.
      num_seeds: independent trainings of each, one after the other.
      num_games: of each match; both players search.
    """
    module = load(script)
    path = os.pathsep.join([str(script), os.environ.get("PYTHONPATH", "")])
    os.environ["PYTHONPATH"] = path  # of the commands that train triglot's, which import `network`
    for seed in range(num_seeds):
        ours = net_of_run(trained_here(seed, out / f"triglot-{seed}"))
        theirs = functools.partial(apply_pgx, module.forward), trained(module, seed, out)
        key = jax.random.key(seed)
        results = {
            "triglot against pgx's": played(*ours, *theirs, key, num_games, noise=True),
            "triglot against random": played(*ours, None, (), key, num_games, noise=False),
            "pgx's against random": played(*theirs, None, (), key, num_games, noise=False),
        }
        shown = (f"{name} {won} won, {lost} lost" for name, (won, lost) in results.items())
        print(f"seed {seed}, of {num_games} games: {'; '.join(shown)}", flush=True)


def trained_here(seed: int, run: Path) -> Path:
    """Train triglot's AlphaZero by its preset, on pgx's network, or continue the run."""
    if not finished(run):
        words = ("alphazero", f"pgx:{GAME},opponent=self", "--seed", str(seed))
        train(run, *words, "--network", "benchmarks.peers.pgx_alphazero:network")
    return run


def load(script: Path) -> Any:
    """Import pgx's script without its training; it is configured by its command line alone."""
    command = types.SimpleNamespace(from_cli=lambda: SETTING)
    pgx.make_baseline_model = lambda name: None  # downloaded, and only for its evaluations
    return import_files(script, {"wandb": (), "omegaconf": {"OmegaConf": command}}, "train")[0]


def trained(script: Any, seed: int, out: Path) -> PyTree:
    """Train by the functions of pgx's script, as its main part does.

    Returns:
      The parameters and the state of its network.
    """
    file = out / f"pgx-{seed}.pickle"
    if file.exists():
        return pickle.loads(file.read_bytes())
    num_iterations = NUM_MOVES // MOVES_PER_ITERATION
    env, batch_size = script.env, SETTING["training_batch_size"]
    init_key, key = jax.random.split(jax.random.PRNGKey(seed))
    states = jax.vmap(env.init)(jax.random.split(init_key, 2))
    model = script.forward.init(init_key, states.observation)
    start = model, script.optimizer.init(model[0])
    model, opt_state = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], start)  # of one device
    for keys in jax.random.split(key, (num_iterations, 2)):
        samples = script.compute_loss_input(script.selfplay(model, keys[:1]))
        samples = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[3:]), samples)
        order = jax.random.permutation(keys[1], len(samples.mask)).reshape(-1, 1, batch_size)
        for rows in order:
            batch = jax.tree.map(lambda leaf, rows=rows: leaf[rows], samples)
            model, opt_state, *_ = script.train(model, opt_state, batch)
    learned = jax.tree.map(lambda leaf: jax.device_get(leaf)[0], model)
    file.write_bytes(pickle.dumps(learned))
    return learned


def network(obs_spec: Spec, action_spec: Discrete) -> nn.Network:
    """Make pgx's network for triglot; pgx's folder must be on the path."""
    module: Any = importlib.import_module("network")
    size = {"num_channels": SETTING["num_channels"], "num_blocks": SETTING["num_layers"]}

    def heads(obs: jax.Array, train: bool = False) -> dict[str, jax.Array]:
        net = module.AZNet(action_spec.num_values, **size)
        logits, value = net(obs, train, test_local_stats=False)
        return {"logits": logits, "value": value}

    return from_haiku(heads, obs_spec, name="pgx")


def apply_pgx(forward: Any, model: PyTree, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    return forward.apply(*model, obs, is_eval=True)[0]


def net_of_run(folder: Path) -> tuple[Net, PyTree]:
    """Read the network of triglot's AlphaZero from its run."""
    run = load_run(folder)
    network = run.agent.network
    learned = jax.tree.map(lambda leaf: leaf[0], run.agent_states.learner.variables)

    def apply(variables: nn.Variables, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        heads, _ = nn.apply_heads(network, variables, obs.astype(jnp.float32))
        return heads["logits"], heads["value"]

    return apply, learned


@functools.partial(jax.jit, static_argnames=("one", "other", "num_games", "noise"))
def played(
    one: Net,
    ours: PyTree,
    other: Net | None,
    theirs: PyTree,
    key: jax.Array,
    num_games: int,
    *,
    noise: bool,
) -> tuple[jax.Array, jax.Array]:
    """Count the games that the first player won and lost; who begins is drawn.

    Both search by Gumbel AlphaZero, or move at random where the network is None. Without `noise`
    two searching players would repeat one game.
    """
    env = pgx.make(GAME)
    reset_key, key = jax.random.split(key)

    def move(loop: Loop) -> Loop:
        states, score, key = loop
        next_key, one_key, other_key = jax.random.split(key, 3)
        mine = searched(env, one, ours, states, one_key, noise)
        others = searched(env, other, theirs, states, other_key, noise)
        action = jnp.where(states.current_player == 0, mine, others)
        states = jax.vmap(env.step)(states, action)
        return states, score + states.rewards[:, 0], next_key

    start = jax.vmap(env.init)(jax.random.split(reset_key, num_games)), jnp.zeros(num_games), key
    _, score, _ = jax.lax.while_loop(lambda loop: ~loop[0].terminated.all(), move, start)
    return (score > 0).sum(), (score < 0).sum()


def searched(
    env: pgx.Env,
    net: Net | None,
    model: PyTree,
    states: pgx.State,
    key: jax.Array,
    noise: bool,
) -> jax.Array:
    """Choose the moves of the players whose turn it is."""
    if net is None:
        return random_player(states.observation, states.legal_action_mask, key)

    def node_of(states: pgx.State, **rest: Any) -> rl.Node:
        logits, value = net(model, states.observation)
        mask = states.legal_action_mask
        return rl.Node(state=states, logits=logits, value=value, action_mask=mask, **rest)

    def expand(states: pgx.State, action: jax.Array, key: jax.Array) -> rl.Node:
        del key
        after = jax.vmap(env.step)(states, action)
        reward = after.rewards[jnp.arange(len(action)), states.current_player]
        return node_of(after, reward=reward, discount=jnp.where(after.terminated, 0.0, -1.0))

    config = rl.SearchConfig(num_simulations=NUM_SIMULATIONS, gumbel=True)
    hyper = rl.SearchHyperparams(value_scale=0.1)  # pgx's
    return rl.search(node_of(states), expand, key, config, hyper, explore=noise).action


if __name__ == "__main__":
    tyro.cli(main)
