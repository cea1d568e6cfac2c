"""The 37 details of Huang et al. 2022 (PPO), and which of them a loss or an update has.

Source: Huang, Dossa, Raffin, Kanervisto, Wang, "The 37 Implementation Details of Proximal Policy
Optimization", ICLR blog track 2022,
https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Detail(NamedTuple):
    """A detail that belongs to a loss, advantages or an update.

    Attributes:
      number: in the list of the core details, or of those of continuous actions.
      text: what it is.
      parts: the parts of `PARTS` that have it.
      switches: the differences that concern it.
    """

    number: int
    text: str
    parts: Sequence[str]
    switches: Sequence[str]


COMPARED = (
    Detail(3, "Adam's epsilon", ("ppo.optimizer",), ("adam_eps",)),
    Detail(4, "annealed learning rate", ("ppo.schedule",),
           ("constant_rate", "rate_after_rollout")),
    Detail(5, "generalized advantages", ("ppo.gae",), ("cut_at_truncation",)),
    Detail(7, "normalized advantages", ("ppo.loss", "ppo.gae"),
           ("unbiased_std", "no_standardization", "rollout_standardization")),
    Detail(8, "clipped surrogate", ("ppo.loss",), ()),
    Detail(9, "clipped value loss", ("ppo.loss",), ("no_value_clip", "clipped_value_alone")),
    Detail(10, "overall loss, entropy bonus", ("ppo.loss",), ("no_entropy", "double_value_loss")),
    Detail(11, "gradients clipped by their norm", ("ppo.optimizer",),
           ("clip_by_element", "no_gradient_clip", "clip_each_network")),
    Detail(1, "normal distributions (continuous actions)", ("ppo.continuous",), ()),
    Detail(3, "independent components (continuous actions)", ("ppo.continuous",), ()),
)  # fmt: skip
OUTSIDE: Mapping[str, str] = {
    "1, 6 (vectorized environments, minibatches)": "the loop around the functions",
    "2, 13 (initialization, shared or separate networks)": "networks, which `diff` compares by "
    "themselves, with their initializers",
    "12 (debug variables)": "no effect",
    "9 of Atari": "wrappers of the environment, and a network",
    "2, 4 to 9 of continuous actions": "networks, wrappers of the environment, and the loop",
    "5 of LSTMs": "a recurrent network and its minibatches",
    "1 of MultiDiscrete": "the distribution of several actions",
}


def outcome(detail: Detail, rows: Sequence[Mapping[str, Any]]) -> str:
    """Say what `diff` found of a detail in one implementation, at equal settings or defaults."""
    mine = [row for row in rows if row["part"] in detail.parts]
    if not mine:
        return "not compared"
    findings = [(f["switch"], f["cause"]) for row in mine for f in row["findings"]]
    relevant = dict((switch, cause) for switch, cause in findings if switch in detail.switches)
    if not relevant:
        return "equal"
    return ", ".join(f"`{cause}`" if cause else "**missed**" for cause in relevant.values())


def count(projects: Mapping[str, Any]) -> tuple[int, int]:
    """Count the differences in these details, and those that `diff` named by itself."""
    outcomes = [outcome(detail, project["rows"])
                for project in projects.values() for detail in COMPARED]  # fmt: skip
    differing = [each for each in outcomes if "`" in each or "*" in each]
    return len(differing), sum("*" not in each for each in differing)
