"""`triglot rate`: games between policies, and a rating of runs."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
import triglot.sweep
from tests.extras import is_missing
from tests.printed import unwrapped
from triglot.cli import main as cli
from triglot.core.environment import Player, TimeStep, first_step
from triglot.core.specs import Box, Discrete
from triglot.runs.rating.games import act_randomly, play_games
from triglot.runs.rating.players import Rated
from triglot.runs.rating.rate import tournament
from triglot.runs.resume.restoring import kept_checkpoints

needs_pgx = pytest.mark.skipif(is_missing("pgx"), reason="pgx is missing")


@dataclass(frozen=True)
class Higher:
    """Both players name a number, and the higher one wins; equal ones are a draw."""

    player: Player = lambda obs, mask, key: jnp.int32(0)

    name = "higher"
    obs_spec = Box((1,), "float32", 0.0, 1.0)
    action_spec = Discrete(3)
    num_players = 2
    copy_period = None

    def against(self, player: Player) -> "Higher":
        return replace(self, player=player)

    def reset(self, key: jax.Array) -> TimeStep:
        return first_step(jnp.zeros(()), jnp.ones((1,)), jnp.ones((3,), bool))

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> TimeStep:
        other = self.player(jnp.ones((1,)), jnp.ones((3,), bool), key)
        reward = jnp.sign(action - other).astype(jnp.float32)
        return replace(self.reset(key), reward=reward, terminated=jnp.ones((), bool))


def constant(arrays: Any, obs: Any, mask: Any, key: jax.Array) -> jax.Array:
    return arrays


def test_games_are_counted_for_both_players() -> None:
    players = [Rated(str(number), constant, jnp.int32(number)) for number in (0, 2, 2)]
    results = tournament(Higher(), players, num_games=5)
    assert results[0, 1].tolist() == results[0, 2].tolist() == [0, 0, 5]
    assert results[1, 0].tolist() == [5, 0, 0] and results[1, 2].tolist() == [0, 5, 0]


def test_a_random_player_wins_a_third_and_draws_a_third() -> None:
    game, key = Higher(), jax.random.key(0)
    won, drawn, lost = play_games(
        game, act_randomly, act_randomly, (), (), key, num_games=3000
    ).tolist()
    for count in (won, drawn, lost):
        assert count == pytest.approx(1000, abs=100)


SMALL = ["--no-preset", "--num-envs", "4", "--rollout-length", "8", "--hidden-sizes", "4"]
GAME = "pgx:tic_tac_toe"


@pytest.mark.slow
@needs_pgx
def test_a_run_of_self_play_is_rated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    words = ["train", "ppo", f"{GAME},opponent=self,copy_period=2", *SMALL, "--out", str(out)]
    # 33 steps are rounded up to 2 updates.
    assert cli.main([*words, "--total-steps", "160", "--keep-every", "33"]) == 0
    assert kept_checkpoints(out).numbers() == [2, 4]
    capsys.readouterr()
    assert cli.main(["rate", str(out), "--games", "16"]) == 0
    printed = unwrapped(capsys)
    assert "4 players, 16 sampled games of each pair" in printed
    found = json.loads((out / "ratings.json").read_text())
    assert [player["num_updates"] for player in found["players"]] == [0, 2, 4, 5]
    assert found["players"][0]["elo"] == 0 and found["players"][0]["player"] == "random"
    assert len(found["games"]) == 6
    assert all(one["won"] + one["drawn"] + one["lost"] == 16 for one in found["games"])
    for player in found["players"]:
        low, high = player["interval95"]
        assert low <= high and player["won"] + player["drawn"] + player["lost"] == 48
    assert (out / "ratings.png").stat().st_size > 1000
    # A run that has finished is an opponent, greedy or not.
    env: Any = triglot.make_env(f"{GAME},opponent={out}")
    assert env == triglot.make_env(f"{GAME},opponent={out}")
    sampled = triglot.make_env(f"{GAME},opponent={out},opponent_sampled=True")
    assert env != sampled
    starts = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 32))
    boards = np.asarray(starts.obs).reshape(32, 9, 2)[..., 1]  # the opponent's stones
    policy = triglot.load_policy(out)
    action = int(policy(jnp.zeros((18,)), jnp.ones((9,), bool)))
    assert set(boards.sum(axis=1)) == {0, 1} and boards[:, action].sum() == boards.sum()
    opponents = {
        f"pgx:connect_four,opponent={out}": "was trained in pgx:tic_tac_toe",
        f"{GAME},opponent={out},copy_period=3": "copy_period of pgx:tic_tac_toe goes with",
        f"{GAME},opponent={out},opponent_sampled=3": "must be True or False, got 3",
    }
    for name, words in opponents.items():
        with pytest.raises(triglot.TriglotError, match=words):
            triglot.make_env(name)
    # A folder called like a word does not replace it, but its path names it.
    shutil.copytree(out, tmp_path / "self")
    monkeypatch.chdir(tmp_path)
    itself: Any = triglot.make_env(f"{GAME},opponent=self")
    named: Any = triglot.make_env(f"{GAME},opponent=./self")
    assert itself.copy_period == 10 and named.copy_period is None
    # What a sweep keeps names the run wherever it is continued.
    swept = triglot.sweep.sweep(
        "ppo", f"{GAME},opponent=run", over={"learning_rate": [1e-3]}, verbose=False,
        config={"num_envs": 4, "rollout_length": 8, "hidden_sizes": (4,)},
        options=triglot.sweep.SweepOptions(
            total_steps=64, num_seeds=1, eval_episodes=0, out=tmp_path / "sweep"
        ),
    )  # fmt: skip
    assert swept.best().env == f"{GAME},opponent={out.resolve()}"
    assert f"opponent={out.resolve()}" in (tmp_path / "sweep" / "sweep.json").read_text()
    (out / "summary.json").unlink()
    with pytest.raises(triglot.TriglotError, match="is killed: an opponent is a run that has"):
        triglot.make_env(f"{GAME},opponent={out}")
