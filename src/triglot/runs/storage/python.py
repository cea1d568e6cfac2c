"""What `config.json` says of a training from Python, beyond the options of `triglot train`.

A training from Python may have any key, hyperparameters that differ between its seeds, and
components without a name, such as a network that is defined in a notebook.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import TriglotError
from ...core.experiment import Experiment
from ...core.options import has_options, option_values
from ...core.records import JSON, JSONDict
from ...core.rl.schedules import Schedule
from ...core.types import AnyHyperparams
from ..registry.origins import name_of_env, origin_of_agent


def facts_of(experiment: Experiment, after: int = 0) -> JSONDict:
    """Describe what the options of the command line cannot say of an experiment.

    Args:
      experiment: the training.
      after: updates that an earlier training has done, whose metrics are not in this folder.

    Raises:
      TriglotError: if a hyperparameter follows a function, which no text describes.
    """
    for name, value in option_values_of(experiment.hyperparams).items():
        if isinstance(value, Schedule) and value.function is not None:
            raise TriglotError(
                f"{name} follows a function, which a run folder cannot hold: give a schedule as "
                "text, such as 'cosine(1e-3, 1e-5)', or write no folder."
            )
    facts: JSONDict = {}
    if seed_of(experiment.key) is None:
        facts["key"] = np.asarray(jax.random.key_data(experiment.key)).tolist()
        facts["key_impl"] = str(jax.random.key_impl(experiment.key))
    if arrays := arrays_of(experiment.hyperparams):
        facts["hyper"] = {name: np.asarray(array).tolist() for name, array in arrays.items()}
    unnamed = [*origin_of_agent(experiment.agent).unnamed]
    unnamed += [] if name_of_env(experiment.env) else ["env"]
    if unnamed:
        facts["unnamed"] = unnamed
    if after:
        facts["after"] = after
    return facts


def seed_of(key: jax.Array) -> int | None:
    """Return the number from which `jax.random.key` makes a key; None of another key."""
    words = np.asarray(jax.random.key_data(key))
    if words.shape != (2,) or words[0]:
        return None
    seed = int(words[1])
    same = jax.random.key(seed)
    return seed if same.dtype == key.dtype and bool(jnp.all(same == key)) else None


def key_of(facts: JSON, seed: int) -> jax.Array:
    """Build the key of a training again."""
    if "key" not in facts:
        return jax.random.key(seed)
    words = jnp.asarray(np.array(facts["key"], np.uint32))
    return jax.random.wrap_key_data(words, impl=facts["key_impl"])


def hyper_of(facts: JSON) -> dict[str, jax.Array]:
    """Return the hyperparameters `[S]` that differ between the seeds, by name."""
    return {name: jnp.asarray(row, jnp.float32) for name, row in facts.get("hyper", {}).items()}


def arrays_of(hyper: AnyHyperparams) -> dict[str, Any]:
    """Select the hyperparameters that are arrays `[S]`."""
    values = option_values_of(hyper)
    return {
        name: value
        for name, value in values.items()
        if not isinstance(value, Schedule) and np.ndim(value)
    }


def option_values_of(hyper: AnyHyperparams) -> dict[str, Any]:
    """List hyperparameters by name; none of an agent without any."""
    return option_values(hyper) if has_options(hyper) else {}
