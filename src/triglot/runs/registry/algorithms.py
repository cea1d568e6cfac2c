"""Find algorithms by name; they are imported on first use.

A built-in name takes precedence over one of an installed package.
"""

from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from ...core import plugins
from ...core.errors import TriglotError, check_known, kind_of, user_error_context
from .loading import advise_file, load

if TYPE_CHECKING:
    from ...core.agent import Algorithm

ALGORITHMS = {
    "ppo": "triglot.algorithms.ppo:PPO",
    "a2c": "triglot.algorithms.a2c:A2C",
    "reinforce": "triglot.algorithms.reinforce:REINFORCE",
    "impala": "triglot.algorithms.impala:IMPALA",
    "vmpo": "triglot.algorithms.vmpo:VMPO",
    "dqn": "triglot.algorithms.dqn:DQN",
    "c51": "triglot.algorithms.c51:C51",
    "qr_dqn": "triglot.algorithms.qr_dqn:QRDQN",
    "iqn": "triglot.algorithms.iqn:IQN",
    "rainbow": "triglot.algorithms.rainbow:Rainbow",
    "pqn": "triglot.algorithms.pqn:PQN",
    "r2d2": "triglot.algorithms.r2d2:R2D2",
    "ddpg": "triglot.algorithms.ddpg:DDPG",
    "td3": "triglot.algorithms.td3:TD3",
    "sac": "triglot.algorithms.sac:SAC",
    "redq": "triglot.algorithms.redq:REDQ",
    "crossq": "triglot.algorithms.crossq:CrossQ",
    "tqc": "triglot.algorithms.tqc:TQC",
    "mpo": "triglot.algorithms.mpo:MPO",
    "alphazero": "triglot.algorithms.alphazero:AlphaZero",
    "muzero": "triglot.algorithms.muzero:MuZero",
    "q_learning": "triglot.algorithms.q_learning:QLearning",
    "monte_carlo": "triglot.algorithms.monte_carlo:MonteCarlo",
    "dyna_q": "triglot.algorithms.dyna_q:DynaQ",
    "openai_es": "triglot.algorithms.openai_es:ES",
}

EXTENSIONS = {
    "rnd": "triglot.algorithms.extensions.rnd:RND",
    "counts": "triglot.algorithms.extensions.counts:Counts",
    "contrast": "triglot.algorithms.extensions.contrast:Contrast",
}
"""What any algorithm may be extended by, as in `ppo+rnd`."""

FAMILIES = {
    "policy gradients: on-policy; any actions, recurrent networks": (
        "ppo", "a2c", "reinforce", "impala", "vmpo",
    ),
    "action values: discrete actions": (
        "dqn", "c51", "qr_dqn", "iqn", "rainbow", "pqn", "r2d2",
    ),
    "actors and critics: off-policy; continuous actions (sac, redq, mpo: discrete ones too)": (
        "ddpg", "td3", "sac", "redq", "crossq", "tqc", "mpo",
    ),
    "search: discrete actions": ("alphazero", "muzero"),
    "tables: discrete observations and actions": ("q_learning", "monte_carlo", "dyna_q"),
    "evolution: any actions, no gradients": ("openai_es",),
}  # fmt: skip
"""What the algorithms of a family share, for `triglot list algorithms`."""


def by_family(names: Iterable[str]) -> dict[str, list[str]]:
    """Group algorithms by family, in the order of `FAMILIES`; those of no family come last."""
    rest = list(names)
    groups = {
        title: [name for name in members if name in rest] for title, members in FAMILIES.items()
    }
    listed = set().union(*groups.values())
    groups["other algorithms"] = [name for name in rest if name not in listed]
    return {title: members for title, members in groups.items() if members}


def algorithm_names() -> list[str]:
    """List the names of all algorithms, built-in ones first."""
    return [*ALGORITHMS, *(name for name in plugins.names("algorithm") if name not in ALGORITHMS)]


def find_algorithm(name: str) -> "Algorithm":
    """Find an algorithm's class by its name, built in or installed, or as `package.module:object`.

    `+` and the name of an extension, or `package.module:object`, extends it: `ppo+rnd`.

    Returns:
      A class that is built from `network, obs_spec, action_spec, config, hyper` into an `Agent`;
      it has the dataclasses `Config` and `Hyperparams`, and `networks(obs_spec, action_spec,
      config)`. With extensions, an `ExtendedAlgorithm`, which is called in the same way.

    Raises:
      TriglotError: if there is no such algorithm, it cannot be imported, or it lacks one of these.
    """
    name, *added = name.split("+")
    if added:
        return _extended(find_algorithm(name), added)
    if ":" not in name and name not in ALGORITHMS:  # listing what is installed reads many files
        if name not in algorithm_names():
            advise_file("algorithm", name)
        check_known("algorithm", name, algorithm_names())
    algorithm = load("algorithm", ALGORITHMS.get(name, name))
    check_algorithm(algorithm, f"algorithm {name!r}")
    return algorithm


def check_algorithm(algorithm: object, called: str) -> None:
    """Refuse what is neither the class of an algorithm nor an `ExtendedAlgorithm`.

    Args:
      algorithm: what was given.
      called: how messages call it.

    Raises:
      TriglotError: saying what was given, or what the class lacks.
    """
    from ...core.families.extension import ExtendedAlgorithm

    if isinstance(algorithm, ExtendedAlgorithm):
        return
    needed = ("Config", "Hyperparams", "networks", "plans")
    with user_error_context(f"{called} failed when it was inspected"):
        lacking = [part for part in needed if not hasattr(algorithm, part)]
    if not isinstance(algorithm, type) or lacking:
        raise TriglotError(
            f"{called} must be a name such as 'ppo', or a class with Config, Hyperparams and "
            "networks, as triglot.PPO is; "
            + (
                f"it lacks {', '.join(lacking)}."
                if isinstance(algorithm, type)
                else f"got {kind_of(algorithm)}."
            )
        )
    for part in ("Config", "Hyperparams"):
        if not is_dataclass(getattr(algorithm, part)):
            raise TriglotError(
                f"{part} of the {called} must be a dataclass, whose fields become "
                f"options; got {getattr(algorithm, part)!r}."
            )


def _extended(algorithm: "Algorithm", names: list[str]) -> "Algorithm":
    """Extend an algorithm by each extension in turn."""
    from ...core.families.extension import Extension, extend

    extended: Any = algorithm
    for name in names:
        if ":" not in name:
            check_known("extension", name, EXTENSIONS)
        extension = load("extension", EXTENSIONS.get(name, name))
        if not (isinstance(extension, type) and issubclass(extension, Extension)):
            raise TriglotError(
                f"extension {name!r} must be a class that inherits rl.Extension; got {extension!r}."
            )
        extended = extend(extended, extension)
    return extended
