"""`triglot evaluate`: play whole episodes with the agent of a run's last checkpoint."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from ..core.errors import TriglotError, counted
from ..core.experiment import Experiment, evaluation_key
from ..core.host_environment import AnyEnvironment, HostEnvironment
from ..core.loop.episode import Episodes
from ..core.loop.state import RunnerState
from ..core.specs import short_pair
from ..shared.machine import memory
from ..shared.machine.files import write_json
from ..shared.statistics import format_return
from ..shared.terminal.progress import Bar, phase
from ..shared.terminal.wrapping import wrapped
from .options import EvaluateOptions, TrainOptions
from .plan import Plan, check_minimums, prepare
from .registry.environments import make_env
from .resume.restoring import restore
from .storage.config import read_config
from .summary import describe_evaluation, evaluation, version_notes

# Episodes of a seed in parallel. They grow with the number of episodes, since many small batches
# leave the cores idle, up to a bound for the memory; environments in Python do not grow.
BATCH, LARGEST_BATCH, USUAL_BATCHES = 32, 1024, 32
RESULTS = "evaluation.json"


def evaluate_run(options: EvaluateOptions, run_options: TrainOptions) -> int:
    """Run `triglot evaluate`.

    Args:
      options: what was chosen.
      run_options: the options with which the run was started.

    Returns:
      The exit code, 0.

    Raises:
      TriglotError: if an option is invalid, or the checkpoint is missing or damaged.
    """
    check_minimums(options, episodes=1, max_steps=1)
    run_options = replace(run_options, devices=options.devices, shard="seeds")
    with phase("building"):
        other = None if options.env is None else make_env(options.env)
        divide = not isinstance(other, HostEnvironment)
        if not divide and options.devices not in (None, 1):
            raise TriglotError(
                f"--env {options.env} is stepped in Python, by one process: leave --devices "
                f"{options.devices} out."
            )
        plan = prepare(run_options, folder=options.run, training=False, divide=divide)
        num_episodes = options.episodes * run_options.num_seeds
        memory.check({"episodes": num_episodes * memory.EPISODE_BYTES})
        played = plan if other is None else _in_env(plan, str(options.env), other)
        progress = restore(plan, previous=options.previous, kind=options.checkpoint)
    done = f"after {progress.num_updates:,} of {counted(plan.experiment.num_updates, 'update')}"
    notes = [*filter(None, [progress.warning]), *version_notes(read_config(options.run))]
    print(wrapped("\n".join([f"{played.title}, {done}", *notes])))
    state = progress.state
    assert state is not None  # there is a checkpoint
    episodes, *unseen = (_play(levels, options, state) for levels in played.experiment.by_levels)
    results = evaluation(episodes, *unseen)
    lines = describe_evaluation(results, "sampled" if options.sampled else "greedy")
    print(wrapped("\n".join(lines)))
    print(
        f"returns {format_return(results['return_min'])} to "
        f"{format_return(results['return_max'])}; "
        f"lengths {results['length_min']:,} to {results['length_max']:,} steps, "
        f"mean {results['length_mean']:,.1f}"
    )
    if len(results["return_per_seed"]) > 1:
        returns = ", ".join(map(format_return, results["return_per_seed"]))
        print(wrapped(f"per seed: {returns}"))
    write_json(
        options.run / RESULTS,
        {
            "num_updates": progress.num_updates,
            "num_steps": progress.num_updates * plan.experiment.steps_per_update,
            "checkpoint": options.checkpoint,
            "env": played.options.env,
            "sampled": options.sampled,
            "seed": options.seed,
            "max_steps": options.max_steps,
            "devices": plan.options.devices,
            **results,
            "returns": np.asarray(episodes.returns),
            "lengths": np.asarray(episodes.lengths),
        },
    )
    print(f"every episode: {options.run / RESULTS}")
    return 0


def _in_env(plan: Plan, name: str, env: AnyEnvironment) -> Plan:
    """Replace a plan's environment by the one of this name.

    Raises:
      TriglotError: if its observations or actions are not those of the run.
    """
    agent = plan.agent
    for what, trained, other in (
        ("observations", agent.obs_spec, env.obs_spec),
        ("actions", agent.action_spec, env.action_spec),
    ):
        if trained != other:
            found, expected = short_pair(other, trained)
            raise TriglotError(
                f"--env {name} has other {what} than {plan.options.env}, in which the run was "
                f"trained: {found} instead of {expected}."
            )
    options = replace(plan.options, env=name)
    return replace(plan, experiment=plan.experiment.in_env(env), options=options)


def batches(episodes: int, *, steps_on_host: bool) -> tuple[int, int]:
    """Choose the number of batches and their size, for at least so many episodes of a seed.

    >>> batches(33, steps_on_host=False), batches(33, steps_on_host=True)
    ((2, 17), (2, 17))
    >>> batches(32_768, steps_on_host=False), batches(1_000_000, steps_on_host=False)
    ((32, 1024), (977, 1024))
    >>> batches(32_768, steps_on_host=True)
    (1024, 32)
    """
    largest = BATCH if steps_on_host else LARGEST_BATCH
    size = min(max(BATCH, -(-episodes // USUAL_BATCHES)), largest)
    num_batches = -(-episodes // size)
    return num_batches, -(-episodes // num_batches)


def _play(experiment: Experiment, options: EvaluateOptions, state: RunnerState) -> Episodes:
    """Play `[S, episodes]` in batches, with a progress bar."""
    steps_on_host = experiment.trainer.steps_on_host
    num_batches, size = batches(options.episodes, steps_on_host=steps_on_host)
    num_seeds = experiment.num_seeds
    # 0 is the number of the evaluation after training.
    key = evaluation_key(jax.random.key(options.seed), num_seeds, 1)
    played = []
    total = num_batches * size * num_seeds
    with Bar(total=total, unit=" episodes") as bar:
        for batch_key in jax.random.split(key, num_batches):
            batch = experiment.evaluate(
                state,
                num_episodes=size,
                keys=jax.random.split(batch_key, num_seeds),
                max_steps=options.max_steps,
                explore=options.sampled,
            )
            played.append(jax.block_until_ready(batch))
            bar.update(size * num_seeds)
    return jax.tree.map(
        lambda *parts: jnp.concatenate(parts, axis=1)[:, : options.episodes], *played
    )
