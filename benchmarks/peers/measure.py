"""Train all frameworks of a row in interleaved rounds, in one process."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from triglot.core.types import PyTree

from .. import harness
from . import brax, foreign, jumanji, ours, plain, purejaxql, purejaxrl, rejax, sbx, stoix, suites
from .cold import FLOOR, TRIGLOT
from .contender import Contender, NotInstalled, Train, greedy_returns
from .row import Row

BUILDERS: Mapping[str, Callable[..., Contender]] = {
    FLOOR: plain.contender,
    "PureJaxRL": purejaxrl.contender,
    "purejaxql": purejaxql.contender,
    "rejax": rejax.contender,
    "Stoix": stoix.contender,
    "SBX": sbx.contender,
    "CleanRL": foreign.cleanrl,
    "Stable-Baselines3": foreign.sb3,
    "brax": brax.contender,
    "jumanji": jumanji.contender,
    "Craftax_Baselines": suites.craftax_baselines,
    "XLand-MiniGrid": suites.xminigrid,
}


def contenders(
    row: Row, total_steps: int, backend: str, paths: Mapping[str, Path | None]
) -> dict[str, Contender]:
    """Build triglot's programs, then those of the installed peers.

    Args:
      row: the setting.
      total_steps: environment steps of each seed.
      backend: library of triglot's networks.
      paths: of each peer that is not a package, see `main`.
    """
    if row.suites[0] != "gymnax":  # as `triglot train` does for environments that Python steps
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    made = {
        f"{TRIGLOT}, {suite}" if index else TRIGLOT: ours.contender(
            row, f"{suite}:{row.env_id}", total_steps, backend
        )
        for index, suite in enumerate(row.suites)
    }
    return made | installed_peers(row, total_steps, paths)


def installed_peers(
    row: Row, total_steps: int, paths: Mapping[str, Path | None]
) -> dict[str, Contender]:
    """Build the row's peers; print one line for each that is not installed."""
    found = {}
    for name in row.peers:
        try:
            found[name] = BUILDERS[name](row, total_steps, paths.get(name))
        except NotInstalled as error:
            print(f"{name} is left out: it is not installed ({error}).")
    return found


def measure(
    row: Row,
    found: Mapping[str, Contender],
    *,
    total_steps: int,
    rounds: int,
    episodes: int,
    seed: int = 0,
    max_seconds: float = float("inf"),
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Compile and train every framework from scratch in each round.

    Args:
      row: the setting.
      found: the frameworks by name; `triglot` is among them.
      total_steps: environment steps of each seed.
      rounds: trainings of each framework.
      episodes: greedy episodes of each trained policy; 0 plays none.
      seed: random seed of all keys.
      max_seconds: after which no round begins, see `harness.measure`.
      say: called with what is done next.

    Returns:
      Entries by framework, and the seconds of each round.
    """
    keys = jax.random.split(jax.random.key(seed), (rounds, row.num_seeds))
    programs: dict[str, Train] = {}
    compile_seconds: dict[str, float] = {}
    for name, one in found.items():
        say(f"compiling {name}")
        jax.clear_caches()
        programs[name], compile_seconds[name] = one.compile(keys)
    policies: dict[str, list[PyTree]] = {name: [] for name in programs}

    def train(name: str) -> PyTree:
        policies[name].append(programs[name](len(policies[name])))
        return policies[name][-1]

    say("training")
    # Without a warmup: the programs are compiled, and each run takes seconds.
    thunks: dict[str, harness.Thunk] = {name: partial(train, name) for name in programs}
    seconds = harness.measure(thunks, rounds=rounds, warmups=0, max_seconds=max_seconds)
    play_key, entries = jax.random.key(seed + 1), {}
    for name, one in found.items():
        returns = np.array([])
        if episodes:
            every = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *policies[name])
            played = greedy_returns(row.env_id, one, every, play_key, episodes)
            returns = np.asarray(played).mean(axis=1)
        entries[name] = {
            "version": one.version,
            "patches": one.patches,
            "seconds_per_run": harness.interval(seconds[name]),
            "triglot_times_as_fast": harness.time_ratio(seconds, name, TRIGLOT),
            "steps_per_second": harness.interval(total_steps * row.num_seeds / seconds[name]),
            "compile_seconds": compile_seconds[name],
            "greedy_return": returns,
        }
    return {"programs": entries, "seconds": seconds}
