"""What a checkpoint was trained with, and what the run's folder says now."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import numpy as np

from ...core.errors import shown
from ...core.loop.checkpoint import Checkpoints
from ...core.loop.state import RunnerState
from ...core.manifest import MANIFEST, DamagedError
from ...core.records import JSON
from ...shared.machine.files import plain
from ...shared.machine.version import versions
from ..plan import Plan
from ..registry.environments import runs_in
from ..registry.overrides import fields_as_text
from ..storage.config import CHANGES, read_config

# The options that decide what is computed. Those of them that `triglot resume` changes are compared
# with the changes that config.json lists.
OPTIONS = (
    "algorithm", "env", "backend", "arithmetic", "optimizer", "network", "seed", "num_seeds",
    "total_steps", "config", "hyper", "population", "exploit_every", "perturb",
    "exploit_fraction", "selection",
)  # fmt: skip


def binding(plan: Plan) -> JSON:
    """Describe what a checkpoint of a training belongs to, for its manifest."""
    options = plain(fields_as_text(plan.complete_options))
    return {
        "options": {name: options[name] for name in OPTIONS},
        "opponents": _opponents(plan.options.env),
        "versions": versions(),
    }


def _opponents(env: str) -> dict[str, str]:
    """Make a digest of the last checkpoint of each run that plays in an environment, by folder."""
    digests = {}
    for folder in runs_in(env).values():
        checkpoints = Checkpoints(folder / "checkpoints")
        newest = checkpoints.path(checkpoints.numbers()[-1]) / MANIFEST
        digests[str(folder)] = hashlib.sha256(newest.read_bytes()).hexdigest()
    return digests


def check_state(path: Path, number: int, state: RunnerState, keys: jax.Array) -> None:
    """Check that a state is the one that a checkpoint's name and its run's seed promise.

    Args:
      path: of the checkpoint.
      number: updates, from its name.
      state: the runner states `[S, ...]`.
      keys: of the run's seeds, `[S]`.

    Raises:
      DamagedError: if it was renamed, or belongs to a run with another seed.
    """
    done = np.unique(np.asarray(state.num_updates)).tolist()
    if done != [number]:
        raise DamagedError(
            f"{path} holds a state after {', '.join(f'{n:,}' for n in done)} updates, and its "
            f"name says {number:,}: it was renamed or copied. Give it its name back."
        )
    recorded_keys, expected = (np.asarray(jax.random.key_data(key)) for key in (state.key, keys))
    if not np.array_equal(recorded_keys, expected):
        raise DamagedError(
            f"{path} belongs to a training with another seed: it was copied from another run, or "
            "the seed in config.json was changed."
        )


def edited(plan: Plan, of: JSON) -> list[str]:
    """List the options in `config.json` that are not those with which a checkpoint was trained.

    Args:
      plan: of the run.
      of: what the checkpoint's manifest says.
    """
    config, trained = read_config(plan.out), of.get("options")
    if not isinstance(trained, Mapping):
        return []
    changed = {change["option"]: change["to"] for change in config.get(CHANGES, ())}
    sentences = [
        f"{name} is {shown(now)} and was {shown(was)}"
        for name, was, now in _differing(trained, {name: config.get(name) for name in OPTIONS})
        if changed.get(name, was) != now
    ]
    played = of.get("opponents")
    before: Mapping[str, str] = played if isinstance(played, Mapping) else {}
    for name, digest in _opponents(config["env"]).items():
        if before.get(name, digest) != digest:
            sentences.append(f"the opponent {name} has another checkpoint than then")
    return sentences


def _differing(trained: JSON, now: JSON) -> Iterator[tuple[str, object, object]]:
    for name, value in now.items():
        was = trained.get(name)
        if isinstance(value, Mapping) and isinstance(was, Mapping):
            yield from _differing(was, value)
        elif name in trained and was != value:
            yield name, was, value
