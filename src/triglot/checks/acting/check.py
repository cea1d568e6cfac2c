"""Run an agent with frozen parameters, and compare what it acted on with what it learns from."""

from dataclasses import replace
from typing import Any

import jax

from ...core.agent import Agent
from ...core.errors import TriglotError
from ...core.families.extension import Extended
from ...core.host.trainer import HostTrainer
from ...core.loop.trainer import Trainer
from ...core.loop.vectorize import VectorEnvironment
from ...core.specs import vector_size
from .compare import Comparison, Outcome
from .play import Play
from .probe import Probe

MAX_STEPS = 4096  # of all environments: larger replays are not filled
LEAST_STEPS = 40  # of each environment, so that episodes end
MAX_BYTES = 2 * 10**9  # of the observations that are kept
NUM_RECORDED = 3  # updates, of the first that learn and of the last


def compare_on_probe(agent: Agent, env: Any, key: jax.Array, *, masked: bool) -> Outcome:
    """Let an agent act and learn in a probe of an environment's spaces.

    An agent that plans acts in the environment itself.
    """
    if not agent.plans:
        env = Probe(agent.obs_spec, agent.action_spec, masked)
    return compare_training(Trainer(agent, VectorEnvironment(env, agent.num_envs)), key)


def check_training(trainer: Trainer | HostTrainer, key: jax.Array) -> str:
    """Compare before a training what its losses read with what its agent acts on.

    It plays the trainer's environments, opponents included, with one seed on one device;
    environments that are stepped in Python are replaced by a probe of their spaces.

    Returns:
      What was compared, in one line.

    Raises:
      TriglotError: with the first step, environment and array that differ.
    """
    agent: Any = trainer.agent
    if isinstance(trainer, HostTrainer):
        outcome = compare_on_probe(agent, trainer.single_env, key, masked=False)
    else:
        size = vector_size(agent.obs_spec)
        rows = 2 * (agent.learning_starts + LEAST_STEPS * agent.num_envs)
        if (memory := 4 * size * rows) > MAX_BYTES:
            raise TriglotError(
                f"--debug acting keeps {rows:,} observations of {size:,} numbers, which are "
                f"{memory / 1e9:.0f} GB: set a smaller --learning-starts."
            )
        outcome = compare_training(replace(trainer, sharding=None), key)
    if outcome.first is not None:
        raise TriglotError(
            f"learning differs from acting: {outcome.first} `triglot check` explains the check."
        )
    return str(outcome)


def compare_training(trainer: Trainer, key: jax.Array) -> Outcome:
    """Let a trainer's agent act and learn with frozen parameters, and compare.

    An algorithm with extensions acts and learns alone.
    """
    agent = trainer.agent
    while isinstance(agent, Extended):
        agent = agent.agent
    play = Play(replace(trainer, agent=agent))
    updates = _num_updates(play)
    learns = play.agent.learning_starts // (play.num_steps * trainer.env.num_envs)
    chosen = {*range(learns, learns + NUM_RECORDED), *range(updates - NUM_RECORDED, updates)}
    played = list(play.run(play.start(key), updates, chosen.__contains__))
    outcome = Comparison(play, played).run()
    if agent is not trainer.agent:
        reason = "it changes rewards or adds losses; the algorithm alone acts"
        outcome.left_out["extension"] = reason
    return outcome


def _num_updates(play: Play) -> int:
    """Count updates until the replay is full and overwritten, if it is small, and episodes end."""
    agent, steps = play.agent, play.num_steps * play.trainer.env.num_envs
    capacity = getattr(agent.config, "capacity", 0)
    wanted = agent.learning_starts + NUM_RECORDED * steps
    if capacity + capacity // 4 <= MAX_STEPS:
        wanted = max(wanted, capacity + capacity // 4)
    wanted = max(wanted, LEAST_STEPS * play.trainer.env.num_envs)
    return -(-wanted // steps)
