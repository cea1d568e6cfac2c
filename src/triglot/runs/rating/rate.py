"""`triglot rate`: play the checkpoints of runs against each other, and rate them."""

from pathlib import Path

import jax
import numpy as np

from ...core.environment import Game
from ...core.errors import TriglotError
from ...core.records import JSON
from ...shared.machine.files import make_folder, write_json
from ...shared.pages.tables import Column, Table, as_text
from ...shared.terminal.progress import Bar, phase
from ...shared.terminal.wrapping import terminal_width, wrapped
from ..plan import check_minimums
from ..plots.ratings import RatedRun, draw_ratings
from .elo import Ratings, rate
from .games import play_games
from .options import RateOptions
from .players import Rated, game_of, players_of

RESULTS, PLOT = "ratings.json", "ratings.png"


def rate_runs(options: RateOptions) -> int:
    """Run `triglot rate`.

    Args:
      options: what was chosen.

    Returns:
      The exit code, 0.

    Raises:
      TriglotError: if an option is invalid, or the runs cannot play one game.
    """
    if not options.runs:
        raise TriglotError("give the folders of the runs: triglot rate runs/first")
    for run in options.runs:
        if options.runs.count(run) > 1:
            raise TriglotError(f"{run} is given twice: give each run once.")
    check_minimums(options, games=1)
    out = options.out or options.runs[0]
    with phase("reading"):
        game, plans = game_of(options.runs, options)
        players = players_of(plans, options)
    results = tournament(game, players, num_games=options.games, seed=options.seed)
    ratings = rate(results, seed=options.seed)
    table = _table(players, results, ratings)
    games = f"{options.games:,} {'greedy' if options.greedy else 'sampled'} games of each pair"
    print(wrapped(f"{game.name}: {len(players)} players, {games}"))
    print(as_text(table, terminal_width()))
    print(wrapped(table.note))
    if options.out is not None:
        make_folder(out)
    write_json(out / RESULTS, _as_json(game, options, players, results, table))
    draw_ratings(out / PLOT, _curves(options.runs, players, ratings), title=f"Elo in {game.name}")
    print(f"written: {out / RESULTS}, {out / PLOT}")
    return 0


def tournament(game: Game, players: list[Rated], *, num_games: int, seed: int = 0) -> np.ndarray:
    """Play `num_games` games of each pair, with a progress bar.

    Returns:
      int `[P, P, 3]`, the games that player i won, drew and lost against j.
    """
    results = np.zeros((len(players), len(players), 3), np.int64)
    pairs = list(zip(*np.triu_indices(len(players), 1), strict=True))
    keys = jax.random.split(jax.random.key(seed), len(pairs))
    with Bar(total=len(pairs) * num_games, unit=" games") as bar:
        for (i, j), key in zip(pairs, keys, strict=True):
            one, other = players[i], players[j]
            acts = (game, one.act, other.act, one.arrays, other.arrays, key)
            results[i, j] = np.asarray(play_games(*acts, num_games=num_games))
            results[j, i] = results[i, j, ::-1]
            bar.update(num_games)
    return results


def _table(players: list[Rated], results: np.ndarray, ratings: Ratings) -> Table:
    won, drawn, lost = results.sum(axis=1).T
    records = [
        {
            "player": player.name,
            "run": None if player.run is None else str(player.run),
            "num_updates": player.num_updates,
            "num_steps": player.num_steps,
            "elo": float(ratings.elo[i]),
            "interval95": [float(ratings.low[i]), float(ratings.high[i])],
            "won": int(won[i]),
            "drawn": int(drawn[i]),
            "lost": int(lost[i]),
        }
        for i, player in enumerate(players)
    ]
    columns = (
        Column("player", lambda row: row["player"], left=True),
        Column("Elo", lambda row: f"{row['elo']:.0f}"),
        Column("95% interval", lambda row: " to ".join(f"{x:.0f}" for x in row["interval95"])),
        Column("won", lambda row: f"{row['won']:,}"),
        Column("drawn", lambda row: f"{row['drawn']:,}"),
        Column("lost", lambda row: f"{row['lost']:,}"),
    )
    note = (
        "Elo points above the random player, by maximum likelihood; a draw is half a win. A "
        "difference of 400 points is odds of 10. Intervals: bootstrap over games."
    )
    return Table(name="ratings", title="Ratings", columns=columns, records=records, note=note)


def _as_json(
    game: Game, options: RateOptions, players: list[Rated], results: np.ndarray, table: Table
) -> JSON:
    pairs = zip(*np.triu_indices(len(players), 1), strict=True)
    return {
        "env": game.name,
        "games_per_pair": options.games,
        "sampled": not options.greedy,
        "seed_index": options.seed_index,
        "seed": options.seed,
        "players": table.records,
        "games": [
            {
                "one": players[i].name,
                "other": players[j].name,
                **dict(zip(("won", "drawn", "lost"), results[i, j].tolist(), strict=True)),
            }
            for i, j in pairs
        ],
    }


def _curves(runs: tuple[Path, ...], players: list[Rated], ratings: Ratings) -> list[RatedRun]:
    curves = []
    for run in runs:
        rows = [i for i, player in enumerate(players) if player.run == run]
        steps = np.array([players[i].num_steps for i in rows])
        curves.append(RatedRun(run.resolve().name, steps, *(part[rows] for part in ratings)))
    return curves
