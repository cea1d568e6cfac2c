"""Find values of `Config` and `Hyperparams` that cannot have an effect where they are given.

A field says by `core.hyper.only_for` where it acts. Nothing is found unless it is certain.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass
from typing import Any

from ...core.agent import Agent, Algorithm
from ...core.errors import TriglotError
from ...core.host_environment import AnyEnvironment
from ...core.hyper import first_numbers, for_environment
from ...core.loop.state import reads_learning_rate
from ...core.network import Network
from ...core.networks.architecture import NetworkSpec
from ...core.options import OptionTable, option_fields, option_values, replace_options
from ...core.records import AnyOptions, Values
from ...core.rl.optimizers import OPTIMIZERS, OptimizerFn, is_read
from ...core.specs import Box, Spec
from ...core.types import AnyConfig, AnyHyperparams

# One configuration often serves several environments and networks, of which some have these layers.
SHARED = ("hidden_sizes", "cell_size")


@dataclass(frozen=True, kw_only=True)
class Effects:
    """Where the fields of an algorithm's `Config` and `Hyperparams` act.

    Attributes:
      algorithm: its class, or an agent.
      called: how messages call it.
      env: the environment.
      config: the complete `Config`.
      optimizer: as it was chosen, a name or a function; None for the algorithm's own.
      custom: where the networks come from, if not from the algorithm's description.
      named: how messages call another field.
    """

    algorithm: Algorithm | Agent
    called: str
    env: AnyEnvironment
    config: AnyConfig
    optimizer: str | OptimizerFn | None
    custom: str | None
    named: Callable[[str], str] = str

    def why_not(self, field: "Field[Any]") -> str | None:
        """Say why a field cannot have an effect; None if it can."""
        reader, env = field.metadata.get("only_for"), self.env
        if reader == "networks":
            specs = self._networks(self.config)
            if self.custom and not any(isinstance(spec, Network) for spec in specs.values()):
                return self.custom  # they replace all that the algorithm describes
            if not self._is_read_by_networks(field, specs):
                return (
                    f"the networks that {self.called} has by default for {env.name}, with "
                    f"{_kind(env.obs_spec)} observations and {_kind(env.action_spec)} actions, do "
                    "not use it"
                )
        if reader == "optimizer":
            function = self._optimizer()
            name = next((name for name, known in OPTIMIZERS.items() if known is function), None)
            defaults = for_environment(self.algorithm.Hyperparams(), ())
            hyper = first_numbers(defaults)  # which has all numbers
            if name is not None and not is_read(OPTIMIZERS[name], hyper, field.name):
                return f"the optimizer {name} does not use it"
        if reader == "continuous" and not isinstance(env.action_spec, Box):
            return f"the actions of {env.name} are not a Box of floats"
        others = (None, "networks", "optimizer", "continuous")
        if reader not in others and not getattr(self.config, reader):
            return f"it needs {self.named(reader)}"
        return None

    def _networks(self, config: AnyConfig) -> Mapping[str, NetworkSpec | Network]:
        return self.algorithm.networks(self.env.obs_spec, self.env.action_spec, config)

    def _optimizer(self) -> OptimizerFn | None:
        """Return the chosen optimizer, or the algorithm's own; None if it is unknown here."""
        if isinstance(self.optimizer, str):
            return OPTIMIZERS.get(self.optimizer)
        # A class may leave it to whoever builds agents.
        return self.optimizer or getattr(self.algorithm, "optimizer", None)

    def _is_read_by_networks(
        self, field: "Field[Any]", specs: Mapping[str, NetworkSpec | Network]
    ) -> bool:
        """Return whether another value of a field changes the description of the networks."""
        try:
            other = _another(field, getattr(self.config, field.name))
            return specs != self._networks(replace_options(self.config, {field.name: other}))
        except Exception:  # the other value is refused, so something reads it
            return True


def check_values(
    effects: Effects, config: AnyConfig | Values | None, hyper: AnyHyperparams | Values | None
) -> None:
    """Refuse values that were given by name in Python and cannot have an effect.

    Those in `SHARED` are not checked, as they are on the command line.

    Args:
      effects: of an agent.
      config: the argument `config` of `make_agent`; only a mapping is checked.
      hyper: the argument `hyper`, likewise.

    Raises:
      TriglotError: naming the field and where it would act.
    """
    agent: Any = effects.algorithm
    for owner, values in ((agent.Config, config), (agent.Hyperparams, hyper)):
        for field, value in chosen(owner, values) if isinstance(values, Mapping) else ():
            if field.name in SHARED:
                continue
            why = effects.why_not(field)
            if why is None and field.name == "learning_rate" and not reads_learning_rate(agent):
                why = "the optimizer does not read it"
            if why is not None:
                raise TriglotError(
                    f"{effects.called}'s {field.name}={value!r} has no effect: {why}; leave it out."
                )


def chosen(
    owner: type | OptionTable, options: AnyOptions | Values
) -> Iterator[tuple["Field[Any]", Any]]:
    """Yield the fields that differ from their defaults, with their values."""
    values = options if isinstance(options, Mapping) else option_values(options)
    for field in option_fields(owner):
        value = values.get(field.name, field.default)
        value = tuple(value) if isinstance(value, list) else value
        if value != field.default:
            yield field, value


def _another(field: "Field[Any]", value: Any) -> Any:
    """Choose a value for a field that differs from this one."""
    allowed = field.metadata.get("allowed")
    if isinstance(allowed, tuple):
        return next(other for other in allowed if other != value)
    if isinstance(value, bool):
        return not value
    if value is None:  # a size for each layer, or one for all
        return (2,)
    return (*value, 2) if isinstance(value, tuple) else value + 1


def _kind(spec: Spec) -> str:
    shape = f" {list(spec.shape)}" if isinstance(spec, Box) else ""
    return f"{type(spec).__name__}{shape}"
