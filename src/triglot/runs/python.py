"""A training that was built in Python, as a plan of the command `triglot train`."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.experiment import Experiment
from ..core.options import has_options
from .options import TrainOptions
from .plan import Plan
from .registry.origins import name_of_env, origin_of_agent
from .storage.python import facts_of, seed_of


def plan_of(experiment: Experiment, out: Path, *, after: int = 0) -> Plan:
    """Describe an experiment by the options of `triglot train`.

    Args:
      experiment: the training.
      out: its folder.
      after: updates that an earlier training has done, whose metrics are not in the folder.
    """
    agent: Any = experiment.agent
    origin, sharding = origin_of_agent(agent), experiment.sharding
    env = name_of_env(experiment.env) or re.sub(r"[,=\s]+", "_", experiment.env.name)
    options = TrainOptions(
        algorithm=origin.algorithm,
        env=env,
        backend=origin.backend,
        arithmetic=origin.arithmetic,
        network=origin.network,
        optimizer=origin.optimizer,
        num_seeds=experiment.num_seeds,
        seed=seed_of(experiment.key) or 0,
        total_steps=experiment.total_steps,
        config=agent.config if has_options(agent.config) else {},
        hyper=agent.hyper if has_options(agent.hyper) else {},
        devices=1 if sharding is None else sharding.num_devices,
        shard=None if sharding is None else sharding.shard,
        out=out,
    )
    if (population := experiment.population) is not None:
        options = replace(
            options,
            population=population.size,
            exploit_every=population.exploit_every,
            perturb=tuple(population.perturb),
            exploit_fraction=population.fraction,
            selection=population.selection,
        )
    return Plan(options=options, experiment=experiment, out=out, python=facts_of(experiment, after))
