"""pgx's own AlphaZero and triglot's, at the same number of moves, against each other.

The script is that of pgx's repository, `examples/alphazero`; triglot's runs are those of
`python -m benchmarks.published`. A seed that is trained is read from `--out`.

python -m benchmarks.pgx_alphazero pgx/examples/alphazero runs/published/alphazero-connect-four
"""

import functools
import pickle
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import pgx
import tyro

from triglot import load_run, nn, rl

Net: TypeAlias = Callable[[Any, jax.Array], tuple[jax.Array, jax.Array]]
"""Gives the logits `[N, num_actions]` and the value `[N]` of observations, from variables."""
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
MOVES_PER_ITERATION = SETTING["selfplay_batch_size"] * SETTING["max_num_steps"]


def main(
    script: tyro.conf.Positional[Path],
    runs: tyro.conf.Positional[Path],
    out: Path = Path("runs/pgx_alphazero"),
    num_moves: int = 262_144,
    num_seeds: int = 5,
    num_games: int = 512,
) -> None:
    """Train pgx's seeds, and let each play triglot's of the same number.

    Args:
      script: the folder of pgx's script.
      runs: the folder of triglot's run.
      out: where pgx's parameters are kept.
      num_moves: of both players, which each seed is trained for.
      num_seeds: independent trainings, one after the other.
      num_games: of each match; both players search.
    """
    names = load(script)
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(num_seeds):
        file = out / f"{seed}.pickle"
        if not file.exists():
            file.write_bytes(pickle.dumps(trained(names, seed, num_moves // MOVES_PER_ITERATION)))
        theirs = functools.partial(apply_pgx, names["forward"]), pickle.loads(file.read_bytes())
        ours = net_of_run(runs, seed)
        key = jax.random.key(seed)
        results = {
            "triglot against pgx's": played(*ours, *theirs, key, num_games, noise=True),
            "triglot against random": played(*ours, random_net, (), key, num_games, noise=False),
            "pgx's against random": played(*theirs, random_net, (), key, num_games, noise=False),
        }
        shown = (f"{name} {won} won, {lost} lost" for name, (won, lost) in results.items())
        print(f"seed {seed}, of {num_games} games: {'; '.join(shown)}", flush=True)


def load(script: Path) -> dict[str, Any]:
    """Run pgx's script up to its training; it is configured by its command line alone."""
    command: Any = types.ModuleType("omegaconf")
    command.OmegaConf = types.SimpleNamespace(from_cli=lambda: SETTING)
    sys.modules |= {"omegaconf": command, "wandb": types.ModuleType("wandb")}
    sys.path.insert(0, str(script))
    pgx.make_baseline_model = lambda name: None  # downloaded, and only for its evaluations
    return runpy.run_path(str(script / "train.py"), run_name="script")


def trained(names: dict[str, Any], seed: int, num_iterations: int) -> Any:
    """Train by the functions of pgx's script, as its main part does.

    Returns:
      The parameters and the state of its network.
    """
    env, batch_size = names["env"], SETTING["training_batch_size"]
    init_key, key = jax.random.split(jax.random.PRNGKey(seed))
    states = jax.vmap(env.init)(jax.random.split(init_key, 2))
    model = names["forward"].init(init_key, states.observation)
    start = model, names["optimizer"].init(model[0])
    model, opt_state = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], start)  # of one device
    for keys in jax.random.split(key, (num_iterations, 2)):
        samples = names["compute_loss_input"](names["selfplay"](model, keys[:1]))
        samples = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[3:]), samples)
        order = jax.random.permutation(keys[1], len(samples.mask)).reshape(-1, 1, batch_size)
        for rows in order:
            batch = jax.tree.map(lambda leaf, rows=rows: leaf[rows], samples)
            model, opt_state, *_ = names["train"](model, opt_state, batch)
    return jax.tree.map(lambda leaf: jax.device_get(leaf)[0], model)


def apply_pgx(forward: Any, model: Any, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    return forward.apply(*model, obs, is_eval=True)[0]


def random_net(model: Any, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Know nothing; a player with this network moves at random."""
    del model
    return jnp.zeros((len(obs), pgx.make(GAME).num_actions)), jnp.zeros(len(obs))


def net_of_run(runs: Path, seed: int) -> tuple[Net, Any]:
    """Read the network of one seed of triglot's AlphaZero."""
    run = load_run(runs)
    network = run.agent.network
    learned = jax.tree.map(lambda leaf: leaf[seed], run.agent_states.learner.variables)

    def apply(variables: nn.Variables, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        heads, _ = nn.apply_heads(network, variables, obs.astype(jnp.float32))
        return heads["logits"], heads["value"]

    return apply, learned


@functools.partial(jax.jit, static_argnames=("one", "other", "num_games", "noise"))
def played(
    one: Net,
    ours: Any,
    other: Net,
    theirs: Any,
    key: jax.Array,
    num_games: int,
    *,
    noise: bool,
) -> tuple[jax.Array, jax.Array]:
    """Count the games that the first player won and lost; who begins is drawn.

    Both search by Gumbel AlphaZero; without `noise` two searching players would repeat one game.
    """
    env = pgx.make(GAME)
    reset_key, key = jax.random.split(key)

    def move(loop: tuple[Any, jax.Array, jax.Array]) -> tuple[Any, jax.Array, jax.Array]:
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


def searched(env: Any, net: Net, model: Any, states: Any, key: jax.Array, noise: bool) -> jax.Array:
    """Choose the moves of the players whose turn it is."""
    if net is random_net:
        return jax.random.categorical(key, jnp.where(states.legal_action_mask, 0.0, -jnp.inf))

    def node_of(states: Any, **rest: Any) -> rl.Node:
        logits, value = net(model, states.observation)
        mask = states.legal_action_mask
        return rl.Node(state=states, logits=logits, value=value, action_mask=mask, **rest)

    def expand(states: Any, action: jax.Array, key: jax.Array) -> rl.Node:
        del key
        after = jax.vmap(env.step)(states, action)
        reward = after.rewards[jnp.arange(len(action)), states.current_player]
        return node_of(after, reward=reward, discount=jnp.where(after.terminated, 0.0, -1.0))

    config = rl.SearchConfig(num_simulations=NUM_SIMULATIONS, gumbel=True)
    hyper = rl.SearchHyperparams(value_scale=0.1)  # pgx's
    return rl.search(node_of(states), expand, key, config, hyper, explore=noise).action


if __name__ == "__main__":
    tyro.cli(main)
