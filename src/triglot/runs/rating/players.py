"""The players of a rating: a random one, and the policies of runs at their checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax

from ...core.agent import Agent
from ...core.environment import Game
from ...core.errors import TriglotError
from ...core.loop.frozen import FrozenPolicy, check_plays
from ...core.types import PyTree
from ...core.wrappers.games import game_in
from ..acting import Acting
from ..load import Run
from ..plan import Plan, prepare
from ..population import chosen_seed_index
from ..registry.environments import make_env
from ..resume.restoring import kept_checkpoints, restore, restore_kept
from ..storage.config import options_of_run
from .games import Act, act_randomly
from .options import RateOptions

NUM_PLAYERS = 2  # that ratings are of


@dataclass(frozen=True, eq=False)
class Rated:
    """One player.

    Attributes:
      name: in tables.
      act: chooses actions from `arrays`.
      arrays: of the policy.
      run: its run directory; None of the random player.
      num_updates, num_steps: of the training at that checkpoint, per seed.
    """

    name: str
    act: Act
    arrays: PyTree
    run: Path | None = None
    num_updates: int = 0
    num_steps: int = 0


def game_of(runs: Sequence[Path], options: RateOptions) -> tuple[Game, list[Plan]]:
    """Make the game of all runs, and read the runs.

    Raises:
      TriglotError: if the runs are of different games, or of none for two players.
    """
    all_options = [options_of_run(run, trust=options.trust) for run in runs]
    names = sorted({run_options.env.partition(",")[0] for run_options in all_options})
    if len(names) > 1:
        raise TriglotError(
            f"the runs are of different games ({', '.join(names)}): rate those of one game."
        )
    game = game_in(make_env(names[0]))
    if game is None or game.num_players != NUM_PLAYERS:
        raise TriglotError(
            f"ratings are of games of two players, such as pgx:connect_four; the runs are of "
            f"{names[0]}: `triglot evaluate` gives their return."
        )
    plans = []
    for run, run_options in zip(runs, all_options, strict=True):
        plan = prepare(run_options, folder=run, training=False)
        check_plays(plan.agent, game, str(run))
        chosen_seed_index(run, options.seed_index, run_options.num_seeds)  # refuses another
        plans.append(plan)
    return game, plans


def players_of(plans: Sequence[Plan], options: RateOptions) -> list[Rated]:
    """Read the policies of runs, the random player first, then each run in the order of steps."""
    players = [Rated("random", act_randomly, ())]
    policies: dict[Agent, FrozenPolicy] = {}  # one for equal agents, which share compiled programs
    for plan in plans:
        last = restore(plan)
        states = {last.num_updates: last.state}
        for number in kept_checkpoints(plan.out).numbers():
            if number not in states:
                states[number] = restore_kept(plan, number).state
        agent, label = plan.agent, plan.out.resolve().name
        for number, state in sorted(states.items()):
            assert state is not None  # there is a checkpoint
            run = Run.of(plan.experiment, state)
            acting = Acting.of(run, options.seed_index, explore=not options.greedy)
            policy = policies.setdefault(agent, acting)
            steps = number * plan.experiment.steps_per_update
            name = f"{label} at {steps:,}" if len(plans) > 1 else f"{steps:,} steps"
            arrays = jax.block_until_ready(acting.arrays)
            players.append(Rated(name, policy.play, arrays, plan.out, number, steps))
    return players
