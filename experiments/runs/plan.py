"""A training with every part checked and nothing compiled yet."""

import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from ...core.environment import check_constant_shapes
from ...core.errors import TriglotError, unknown, user_error_context
from ...core.host.trainer import HostTrainer
from ...core.host_environment import HostEnvironment
from ...core.hyper import fill_schedule_horizon
from ...core.loop.trainer import Trainer, updates_for
from ...core.loop.vectorize import VectorEnvironment
from .. import version
from ..registry import components as registry
from ..registry.loading import load_networks
from . import logs
from .files import check_free, make_folder

if TYPE_CHECKING:
    from ..options import TrainOptions

DEBUG = ("nans", "no-jit")
SEEDS = 2**32  # a key is made of 32 bits


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `triglot train` is about to do.

    Attributes:
      options: what the person chose.
      trainer: the agent in its environments.
      hyper: the numbers it starts from.
      num_updates: updates of each seed.
      out: the folder, made and empty.
    """

    options: "TrainOptions"
    trainer: Trainer | HostTrainer
    hyper: Any
    num_updates: int
    out: Path

    @property
    def env(self) -> Any:
        """The single environment, of either kind."""
        return self.trainer.env.env if isinstance(self.trainer, Trainer) else self.trainer.env

    @property
    def num_steps(self) -> int:
        """Count the environment steps per seed."""
        return self.num_updates * self.trainer.steps_per_update

    @property
    def title(self) -> str:
        """Name the training, as pictures do."""
        options = self.options
        networks = " ".join(options.network) or options.backend
        return f"{options.algorithm} on {options.env}, {networks}"

    def announcement(self) -> str:
        """Say what comes, and that a total was rounded up."""
        options, per_update = self.options, self.trainer.steps_per_update
        lines = [
            f"{self.title}: {options.num_seeds} x {self.num_steps:,} steps, "
            f"{self.num_updates:,} updates of {per_update:,} steps"
        ]
        if self.num_steps != options.total_steps:
            lines.append(
                f"{options.total_steps:,} steps are no whole number of rollouts of {per_update:,}: "
                f"rounded up to {self.num_steps:,}"
            )
        starts = getattr(options.config, "learning_starts", 0)
        if starts > self.num_steps:
            lines.append(
                f"nothing will be learned: learning starts after {starts:,} steps "
                f"(--learning-starts), and there are {self.num_steps:,}"
            )
        if "no-jit" in options.debug:
            lines.append("nothing is compiled (--debug no-jit): an update may take minutes")
        return "\n".join(lines)

    def record(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Write down what it takes to do the same again."""
        return {
            "command": shlex.join(["triglot", *arguments]),
            **{name: value for name, value in vars(self.options).items() if name != "out"},
            "network": list(self.options.network),
            "config": asdict(self.options.config),
            "hyper": asdict(self.hyper),
            "num_updates": self.num_updates,
            "steps_per_update": self.trainer.steps_per_update,
            "num_steps": self.num_steps,
            "versions": version.versions(),
            "device": version.device(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }


def prepare(options: "TrainOptions", *, folder: Path | None = None) -> Plan:
    """Check everything and make the folder.

    Args:
      options: what the person chose.
      folder: of a training that goes on; None for a new one.

    Raises:
      TriglotError: if an option cannot be served, or the parts do not fit each other.
    """
    for mode in options.debug:
        if mode not in DEBUG:
            raise unknown("debug mode", mode, DEBUG)
    logs.check(options.log)
    check_numbers(options, num_seeds=1, eval_episodes=0, checkpoint_seconds=0)
    networks = "own" if options.network else options.backend
    for name, value in vars(options.hyper).items():
        if value != value:
            raise TriglotError(f"{name} is NaN: give a number.")
    out = folder or options.out or default_folder(options.algorithm, options.env, networks)
    if folder is None:
        check_free(out)
    env = registry.make_env(options.env)
    agent = registry.make_agent(
        options.algorithm,
        env,
        backend=options.backend,
        arithmetic=options.arithmetic,
        config=options.config,
        hyper=options.hyper,
        networks=load_networks(options.network, env),
    )
    if isinstance(env, HostEnvironment):
        # Else each small program goes to another thread, which takes longer than the program.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        trainer = HostTrainer(agent, env)
    else:
        trainer = Trainer(agent, VectorEnvironment(env, agent.num_envs))
    num_updates = updates_for(trainer, options.total_steps)
    if _is_own(options):
        _try_out(trainer, f"{options.algorithm} on {options.env}")
    hyper = fill_schedule_horizon(agent.hyper, num_updates)
    if folder is None:
        make_folder(out)
    return Plan(options=options, trainer=trainer, hyper=hyper, num_updates=num_updates, out=out)


def _is_own(options: "TrainOptions") -> bool:
    suite = options.env.partition(":")[0]
    built_in = options.algorithm in registry.ALGORITHMS and suite in registry.SUITES
    return not built_in or bool(options.network)


def _try_out(trainer: Trainer | HostTrainer, title: str) -> None:
    """Trace a person's own parts, so that what they raise becomes one sentence; nothing runs."""
    with user_error_context(f"{title} failed when it was traced"):
        if isinstance(trainer, Trainer):
            check_constant_shapes(trainer.env.env)
        state = jax.eval_shape(trainer.init, jax.random.key(0))
        if isinstance(trainer, Trainer):
            jax.eval_shape(trainer.train_chunk, state)


def check_numbers(options: Any, **least: int) -> None:
    """Refuse a seed that is none, and counts below the `least` of each name.

    Raises:
      TriglotError: saying which.
    """
    for name, bound in {"seed": 0, **least}.items():
        if getattr(options, name) < bound:
            raise TriglotError(f"{name} must be at least {bound}, got {getattr(options, name)}.")
    if options.seed >= SEEDS:
        raise TriglotError(f"seed must be less than {SEEDS}, got {options.seed}.")


def default_folder(*names: str) -> Path:
    """Name a folder under `runs` by what is run and the time."""
    words = [re.sub(r"[^\w.]+", "_", name) for name in names]
    return Path("runs") / "-".join([*words, time.strftime("%Y%m%d-%H%M%S")])
