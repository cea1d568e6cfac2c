"""`triglot evaluate`: whole episodes with the agent of a run's last checkpoint."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from ...core.evaluate import Episodes
from ..statistics import format_return
from .files import write_json
from .plan import Plan, check_numbers, prepare
from .summary import evaluation, evaluation_in_words
from .train import play, restore

if TYPE_CHECKING:
    from ..options import EvaluateCommand, TrainOptions

BATCH = 32  # episodes side by side, between two steps of the progress bar
WRITTEN = "evaluation.json"


def evaluate_run(options: "EvaluateCommand", begun: "TrainOptions") -> int:
    """Run `triglot evaluate`.

    Args:
      options: what the person chose.
      begun: what the training was begun with.

    Returns:
      The exit code, 0.

    Raises:
      TriglotError: if a number cannot be served, there is no checkpoint, or it is damaged.
    """
    check_numbers(options, episodes=1, max_steps=1)
    plan = prepare(begun, folder=options.run)
    progress = restore(plan, previous=options.previous)
    print(f"{plan.title}, after {progress.num_updates:,} updates of {plan.num_updates:,}")
    episodes = _play(plan, options, progress.state.agent)  # pyright: ignore[reportOptionalMemberAccess]
    found = evaluation(episodes)
    print("\n".join(evaluation_in_words(found, "sampled" if options.sampled else "greedy")))
    print(
        f"returns {format_return(found['return_least'])} to "
        f"{format_return(found['return_greatest'])}; "
        f"lengths {found['length_least']:,} to {found['length_greatest']:,} steps, "
        f"{found['length_mean']:,.1f} on average"
    )
    if len(found["return_per_seed"]) > 1:
        print(f"of each seed: {', '.join(map(format_return, found['return_per_seed']))}")
    write_json(
        options.run / WRITTEN,
        {
            "num_updates": progress.num_updates,
            "num_steps": progress.num_updates * plan.trainer.steps_per_update,
            "sampled": options.sampled,
            "seed": options.seed,
            "max_steps": options.max_steps,
            **found,
            "returns": np.asarray(episodes.returns),
            "lengths": np.asarray(episodes.lengths),
        },
    )
    print(f"in {options.run / WRITTEN}: every episode")
    return 0


def _play(plan: Plan, options: "EvaluateCommand", agent_states: object) -> Episodes:
    """Play `[S, episodes]`, batch by batch so that it can be watched."""
    num_batches = -(-options.episodes // BATCH)
    size = -(-options.episodes // num_batches)
    num_seeds = plan.options.num_seeds
    # Other episodes than those at the training's end, whatever the seed.
    key = jax.random.fold_in(jax.random.key(options.seed), num_seeds + 1)
    played = []
    with tqdm(total=num_batches * size * num_seeds, unit=" episodes", dynamic_ncols=True) as bar:
        for batch_key in jax.random.split(key, num_batches):
            batch = play(
                plan,
                agent_states,
                batch_key,
                num_episodes=size,
                max_steps=options.max_steps,
                explore=options.sampled,
            )
            played.append(jax.block_until_ready(batch))
            bar.update(size * num_seeds)
    return jax.tree.map(
        lambda *parts: jnp.concatenate(parts, axis=1)[:, : options.episodes], *played
    )
