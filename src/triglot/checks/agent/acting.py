"""The check that an agent learns from what it acted on."""

from typing import Any

from ...core.network import Network
from ..acting.check import compare_on_probe
from ..report import Checklist, Failed, NotApplicable
from .feeder import LearningCase

CHECKS: Checklist[LearningCase] = Checklist(needs=["learns"])


@CHECKS.check()
def _acting(case: LearningCase) -> None:
    """Do its losses read what it acted on: inputs, carries, masks, log-probabilities?

    Why: Learning from another input, carry or policy than the one that acted is no error anywhere:
    the agent learns, and less than it could.

    Fix: In update, give the network what act gave it: normalize with the statistics that acted,
    start from the stored carry and reset it at `first` of the same environment, apply each
    observation's own mask, and store log-probabilities of the actions as they are stored.
    """
    agent: Any = case.agent
    network = getattr(agent, "network", None)
    if not isinstance(network, Network) or not hasattr(agent, "__dataclass_fields__"):
        raise NotApplicable("the agent has no `network`, whose applications could be compared.")
    if "network" not in agent.__dataclass_fields__:
        raise NotApplicable("`network` is no field of the agent, so that it cannot be replaced.")
    masked = case.inputs.action_mask is not None
    outcome = compare_on_probe(agent, case.env, case.key(60), masked=masked)
    if outcome.unfit:
        raise NotApplicable(outcome.unfit)
    case.notes.append(f"acting: {outcome}.")
    if outcome.first is not None:
        raise Failed(str(outcome.first))
