"""The rounds of a search in a sweep's folder: what was proposed, which later results belong to."""

from collections.abc import Callable, Sequence

from ...runs.jobs.ledger import Ledger
from ...shared.machine.files import ANY, POSITIVE, DamagedRecord, list_of, read_record, write_json
from ..axes import Choices
from ..plan import SweepPlan, extended
from ..results import Outcome
from ..settings import Settings, algorithms_of, axes_of

FIELDS = {"settings": list_of(list_of(ANY)), "sizes": list_of(POSITIVE)}
FILE = "proposals.json"


def name_of(number: int) -> str:
    """Name the folder of a round's proposals."""
    return f"round-{number}"


def recorded(plan: SweepPlan, ledger: Ledger) -> SweepPlan:
    """Add all settings to a plan that the folder has proposals of."""
    for number in range(1, len(plan.rounds)):
        if not ledger.is_done(name_of(number)):
            break
        plan = extended(plan, _read(plan, ledger, number)[0])
    return plan


def next_round(
    plan: SweepPlan,
    sizes: Sequence[int],
    ledger: Ledger,
    number: int,
    outcomes: Sequence[Outcome],
    capacities: Callable[[SweepPlan], list[int]],
) -> tuple[SweepPlan, list[int]]:
    """Add the settings of a round: those in the folder, or else new proposals, written there.

    Args:
      plan: the sweep up to now.
      sizes: the most trainings in a batch, by group.
      ledger: its folder.
      number: of the round, from 1.
      outcomes: the outcomes of all settings up to now.
      capacities: chooses the sizes of a plan's groups.

    Returns:
      The plan with the settings of the round, and the sizes of its groups.
    """
    if ledger.is_done(name_of(number)):
        settings, sizes = _read(plan, ledger, number)
        return extended(plan, settings), sizes
    from .study import propose  # imports Optuna

    options = plan.options
    axes = axes_of(options, algorithms_of(options))
    settings = propose(str(options.search), axes, options.seed, plan.rounds, outcomes)
    plan = extended(plan, settings)
    if len(plan.groups) > len(sizes):
        sizes = [*sizes, *capacities(plan)[len(sizes) :]]
    # A value of a list is written as its place, since JSON has no infinity and no tuple.
    rows = [
        [
            axis.values.index(values[axis.name]) if isinstance(axis, Choices) else values[axis.name]
            for axis in axes
        ]
        for values in settings
    ]
    with ledger.writing(name_of(number)) as folder:
        write_json(folder / FILE, {"settings": rows, "sizes": list(sizes)})
    return plan, list(sizes)


def _read(plan: SweepPlan, ledger: Ledger, number: int) -> tuple[Settings, list[int]]:
    path = ledger.results(name_of(number)) / FILE
    record = read_record(path, FIELDS) or {"settings": [], "sizes": []}
    axes = axes_of(plan.options, algorithms_of(plan.options))
    try:
        settings: Settings = [
            {
                axis.name: axis.values[item] if isinstance(axis, Choices) else axis.rounded(item)
                for axis, item in zip(axes, row, strict=True)
            }
            for row in record["settings"]
        ]
    except (TypeError, ValueError, IndexError):
        settings = []
    if len(settings) != plan.rounds[number]:
        raise DamagedRecord(
            f"{path} is damaged: it does not have {plan.rounds[number]} settings of what is swept. "
            f"Delete {path.parent} to propose them again."
        )
    return settings, record["sizes"]
