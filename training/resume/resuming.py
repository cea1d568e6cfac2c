"""Describe what is not as in the interrupted run: lost metrics, other versions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...machine.version import device, versions
from ..plan import Plan
from ..storage.records import recorded_progress


def resume_notes(
    plan: Plan, config: Mapping[str, Any], done: int, lost: Sequence[int]
) -> Iterator[str]:
    """Describe what is not as in the interrupted run.

    Args:
      plan: the training.
      config: the contents of `config.json`.
      done: updates done at the checkpoint.
      lost: updates whose metrics are damaged or missing.
    """
    if done == 0 and plan.options.init_from is None:
        yield "no checkpoint was written before: training starts from the beginning"
    last = recorded_progress(plan.out)
    if last > done:
        yield (
            f"the checkpoint after {last:,} updates is missing or damaged: continuing after "
            f"{done:,}"
        )
    if lost:
        yield (
            f"warning: the metrics of {len(lost):,} updates are lost, the first is {lost[0]:,}; "
            "the training itself is not affected"
        )
    differing = list(_differences(config))
    if differing:
        yield (
            f"warning: {'; '.join(differing)}. The numbers may differ from those of an "
            "uninterrupted run in the last bits"
        )
    if plan.trainer.steps_on_host:
        yield f"the state of {plan.env.name} cannot be saved: its environments begin new episodes"


def _differences(config: Mapping[str, Any]) -> Iterator[str]:
    before = config.get("versions")
    for name, now in versions().items():
        was = before.get(name) if isinstance(before, Mapping) else None
        if was is not None and was != now:
            yield f"{name} was {was} and is {now or 'not installed'}"
    was, now = config.get("device"), device()
    # Their number is JAX's, and not that of the devices in use (`--devices`).
    if was is not None and _kind(was) != _kind(now):
        yield f"the device was {was} and is {now}"


def _kind(device: str) -> str:
    return device.rpartition(" x ")[0]
