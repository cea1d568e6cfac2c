"""The loss of a built-in algorithm as a function of the outputs of its networks.

The algorithm's own code runs, with networks that return what they are given: `algorithm:ppo` is
compared with a loss of any framework, whatever networks that has.
"""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any, TypeAlias, get_type_hints

import jax
import jax.numpy as jnp

from ...core.agent import Algorithm
from ...core.errors import TriglotError, unknown, user_error_context
from ...core.families.action_values import ReplayedBatch, ReplayedQ
from ...core.families.actor_critic import ActorCriticBatch
from ...core.families.policy_gradient import PolicyGradient, PolicySamples
from ...core.network import Codec, Network, Variables
from ...core.rl.distributions import SquashedGaussian
from ...core.rl.replay import Sample
from ...core.specs import Box, Dict, Discrete
from ...core.tracing.jaxprs import leaves_read
from ...core.types import AnyConfig, AnyHyperparams, PyTree
from ...runs.registry.algorithms import ALGORITHMS, find_algorithm
from .arguments import Arguments, parse_arguments

Loss: TypeAlias = Callable[..., jax.Array]  # of arrays by name, or in order
LossAndInputs: TypeAlias = tuple[Loss, list[str]]  # with the descriptions of its arguments

PREFIX = "algorithm:"
ROWS, ACTIONS = 32, 3  # of a batch
CONTINUOUS = "continuous"  # the part of a policy gradient's loss of continuous actions
UNIT_BOX = Box((ACTIONS,), low=-1.0, high=1.0)
EMPTY = Variables(params={}, state=())  # of networks that return what they are given
TARGET = "target_"  # before the names of a target network's outputs
NEXT = "next_"  # before the names of what networks return for the next observation
SUPPORTED = "policy gradients, replayed action values and SAC"
KINDS = {"advantage": "advantage", "target": "return", "log_prob": "log_prob", "value": "value"}


@dataclass(frozen=True, eq=False)
class Reference:
    """The loss of an algorithm.

    Attributes:
      name: the algorithm's, such as `ppo` or `sac.critic`.
      function: takes the arrays of `arguments` by name, and returns the loss, float32 `[]`.
      arguments: the arguments that it reads, in the order of its signature.
      source: the lines of the algorithm's code.
    """

    name: str
    function: Loss
    arguments: Arguments
    source: str

    @property
    def signature(self) -> str:
        """The signature to write against."""
        return f"def loss({', '.join(self.arguments.names)}):"

    def describe(self) -> str:
        """Write the signature with the shape and meaning of each argument."""
        lines = [f"{self.signature}  # returns the loss, a scalar"]
        for argument in self.arguments.items:
            learned = ", learned" if argument.is_learned else ""
            sizes = ", ".join(map(str, argument.spec.shape))
            lines.append(f"  {argument.name}: {argument.spec.dtype} [{sizes}]{learned}")
        return "\n".join(lines)


def load_reference(text: str) -> Reference:
    """Build the loss of a built-in algorithm.

    Args:
      text: `algorithm:NAME`, `algorithm:NAME.PART` where there are several losses, with values of
        options that differ from their defaults: `algorithm:ppo,clip_epsilon=0.1`. That of a policy
        gradient is of discrete actions, `algorithm:ppo.continuous` of continuous ones.

    Raises:
      TriglotError: if the algorithm or a part of it is unknown, or its loss is no function of the
        outputs of its networks.
    """
    name_and_part, *options = text.removeprefix(PREFIX).split(",")
    name, _, part = name_and_part.partition(".")
    if name not in ALGORITHMS:
        raise unknown("built-in algorithm", name, sorted(ALGORITHMS))
    algorithm: Any = find_algorithm(name)
    unsupported = (
        f"the loss of {name!r} does not depend on its networks' outputs alone; those of "
        f"{SUPPORTED} do"
    )
    config, hyper = _options(algorithm, options)
    builders: Mapping[str, Callable[[], LossAndInputs]]
    if issubclass(algorithm, PolicyGradient) and hasattr(algorithm, "loss"):
        builders = {
            "": lambda: _policy_gradient(algorithm, config, hyper, Discrete(ACTIONS)),
            CONTINUOUS: lambda: _policy_gradient(algorithm, config, hyper, UNIT_BOX),
        }
    elif issubclass(algorithm, ReplayedQ) and not algorithm.recurrent:
        builders = {"": lambda: _action_values(algorithm, config, hyper)}
    elif hasattr(algorithm, "critic_loss") and hasattr(algorithm, "temperature_loss"):
        builders = {
            each: lambda each=each: _actor_critic(algorithm, config, hyper, each)
            for each in ("critic", "actor", "temperature")
        }
    else:
        raise TriglotError(f"{unsupported}, such as algorithm:ppo.")
    part = part or next(iter(builders))
    if part not in builders:
        raise unknown(f"loss of {name}", part, [each for each in builders if each] or ["none"])
    with user_error_context(unsupported):
        function, texts = builders[part]()
        all_arguments = parse_arguments(tuple(texts))
        arguments = _read_only(function, all_arguments)
    full_name = f"{name}.{part}" if part else name
    source = ALGORITHMS[name].partition(":")[0].replace(".", "/") + ".py"
    return Reference(full_name, _by_position(function, arguments, all_arguments), arguments, source)


def _options(algorithm: Algorithm, texts: list[str]) -> tuple[AnyConfig, AnyHyperparams]:
    """Fill in the options of an algorithm's loss."""
    values: dict[str, dict[str, object]] = {"Config": {}, "Hyperparams": {}}
    for text in texts:
        name, equals, value = text.partition("=")
        owners = [kind for kind in values
                  if name in {each.name for each in fields(getattr(algorithm, kind))}]  # fmt: skip
        if not equals or not owners:
            option_names = [f.name for kind in values for f in fields(getattr(algorithm, kind))]
            raise unknown("option of the loss", name, option_names)
        try:
            values[owners[0]][name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            values[owners[0]][name] = {"true": True, "false": False}.get(value, value)
    return algorithm.Config(**values["Config"]), algorithm.Hyperparams(**values["Hyperparams"])


def _outputs_network(shapes: Mapping[str, tuple[int, ...]]) -> tuple[Network, Dict]:
    """Return a network whose observations are its outputs, and the spec of these."""

    def apply(
        variables: Variables,
        inputs: Mapping[str, jax.Array],
        *,
        key: jax.Array | None = None,
        train: bool = False,
    ) -> tuple[PyTree, PyTree]:
        del key, train
        prefix = TARGET if "target" in variables.params else ""
        return {name: inputs.get(prefix + name, inputs[name]) for name in shapes}, variables.state

    spec = Dict({name: Box(shape) for name, shape in shapes.items()})
    codec = Codec.named({}, [])
    network = Network(
        name="outputs", backend="jax", init=lambda key: EMPTY, apply=apply, codec=codec
    )
    return network, spec


def _text(name: str, kind: str, *shape: int) -> str:
    return f"{name}={kind}:{','.join(map(str, shape))}"


def _policy_gradient(
    algorithm: Any, config: AnyConfig, hyper: AnyHyperparams, action_spec: Box | Discrete
) -> LossAndInputs:
    shapes: dict[str, tuple[int, ...]]
    if isinstance(action_spec, Discrete):
        shapes = {"logits": (ACTIONS,), "value": ()}
        action = f"action=action:{ROWS}:0..{ACTIONS - 1}"
    else:  # samples of the Gaussian, before anything bounds them
        shapes = {"mean": (ACTIONS,), "log_std": (ACTIONS,), "value": ()}
        action = _text("action", "value", ROWS, ACTIONS)
    network, spec = _outputs_network(shapes)
    agent = algorithm(
        network=network, obs_spec=spec, action_spec=action_spec, config=config, hyper=hyper
    )
    kind = get_type_hints(algorithm.loss).get("batch")
    sample_fields = {each.name for each in fields(PolicySamples)}
    names = [each.name for each in fields(kind) if each.name not in sample_fields] if kind else []
    if kind is None or not set(names) <= set(KINDS):
        raise TriglotError(
            f"the loss of {algorithm.__name__} does not depend on its network's outputs alone; "
            f"those of {SUPPORTED} do, such as algorithm:ppo."
        )
    argument_names = {
        name: f"old_{name}" if name in ("value", "log_prob") else name for name in names
    }
    texts = [_text(name, "param", ROWS, *shape) for name, shape in shapes.items()]
    texts += [action]
    texts += [_text(argument_names[name], KINDS[name], ROWS) for name in names]

    def function(**arrays: jax.Array) -> jax.Array:
        obs = {name: arrays[name] for name in shapes}
        data = {name: arrays[argument_names[name]] for name in names}
        batch = kind(obs=obs, action_mask=None, action=arrays["action"], **data)
        return agent.loss(EMPTY, batch, jax.random.key(0), agent.hyper)[0]

    return function, texts


def _sample(
    arrays: Mapping[str, jax.Array], outputs: PyTree, action: jax.Array, next_outputs: PyTree
) -> Sample:
    """Make a replayed sample whose observations are what the networks return for them."""
    return Sample(
        obs=outputs,
        action=action,
        reward=arrays["reward"],
        discount=arrays["discount"],
        next_obs=next_outputs,
        next_action_mask=None,
        slot=jnp.zeros(ROWS, jnp.int32),
        probability=jnp.ones(ROWS),
    )


def _action_values(
    algorithm: type[ReplayedQ], config: AnyConfig, hyper: AnyHyperparams
) -> LossAndInputs:
    action_spec = Discrete(ACTIONS)
    architectures = algorithm.networks(Box((4,)), action_spec, config)
    shapes = {name: head.shape for each in architectures.values() for name, head in each.heads}
    network, spec = _outputs_network(shapes)
    agent = algorithm(
        network=network, obs_spec=spec, action_spec=action_spec, config=config, hyper=hyper
    )
    texts = [_text(name, "param", ROWS, *shape) for name, shape in shapes.items()]
    for prefix in (NEXT, NEXT + TARGET):
        texts += [_text(prefix + name, "value", ROWS, *shape) for name, shape in shapes.items()]
    texts += [f"action=action:{ROWS}:0..{ACTIONS - 1}", f"reward:{ROWS}", f"discount:{ROWS}"]
    texts += [f"weight:{ROWS}"]

    def function(**arrays: jax.Array) -> jax.Array:
        next_outputs = {name: arrays[NEXT + name] for name in shapes}
        next_outputs |= {TARGET + name: arrays[NEXT + TARGET + name] for name in shapes}
        outputs = {name: arrays[name] for name in shapes}
        sample = _sample(arrays, outputs, arrays["action"], next_outputs)
        batch = ReplayedBatch(
            sample=sample,
            target=Variables(params={"target": ()}, state=()),
            weight=arrays["weight"],
            hyper=agent.hyper,
        )
        return agent.loss(EMPTY, batch, jax.random.key(0))[0]

    return function, texts


class _GivenLogProb(SquashedGaussian):
    """A policy whose drawn action has a given log-probability, in place of its mean `[B, 1]`."""

    @classmethod
    def of(cls, log_prob: jax.Array) -> "_GivenLogProb":
        """Give the drawn actions log-probabilities `[B]`."""
        return cls(mean=log_prob[:, None], log_std=jnp.zeros_like(log_prob[:, None]))

    def sample(self, key: jax.Array) -> jax.Array:
        """Return any action: the critics return what they are given."""
        del key
        return jnp.zeros_like(self.mean)

    def squashed_log_prob(self, raw: jax.Array) -> jax.Array:
        """Return the log-probabilities `[B]`."""
        del raw
        return self.mean[:, 0]


def _actor_critic(
    algorithm: Any, config: AnyConfig, hyper: AnyHyperparams, part: str
) -> LossAndInputs:
    from ...backends import build

    class WithOutputs(algorithm):
        """The algorithm, whose networks return what is in the observations."""

        def policy(
            self,
            actor: PyTree,
            obs: Mapping[str, jax.Array],
            action_mask: jax.Array | None = None,
            **options: PyTree,
        ) -> tuple[_GivenLogProb, PyTree]:
            return _GivenLogProb.of(obs["log_prob"]), ()

        def q(
            self, critic: PyTree, obs: Mapping[str, jax.Array], action: jax.Array, **options: PyTree
        ) -> tuple[jax.Array, PyTree]:
            return obs["q"], ()

    obs_spec, action_spec = Box((4,)), Box((1,), low=-1.0, high=1.0)
    architectures = algorithm.networks(obs_spec, action_spec, config)
    agent = WithOutputs(
        network=build("jax", architectures),
        obs_spec=obs_spec,
        action_spec=action_spec,
        config=config,
        hyper=hyper,
    )
    learned = {
        "critic": ("q",), "actor": ("log_prob", "q"), "temperature": ("log_temperature",)
    }[part]  # fmt: skip
    kinds = {"q": ("value", 2, ROWS), "next_target_q": ("value", 2, ROWS)}
    kinds |= {"log_prob": ("log_prob", ROWS), "next_log_prob": ("log_prob", ROWS)}
    kinds |= {"log_temperature": ("value",), "reward": ("reward", ROWS)}
    kinds |= {"discount": ("discount", ROWS)}
    texts = [
        _text(name, "param" if name in learned else str(kind), *shape)
        for name, (kind, *shape) in kinds.items()
    ]

    def function(**arrays: jax.Array) -> jax.Array:
        outputs = {"q": arrays["q"], "log_prob": arrays["log_prob"]}
        next_outputs = {"q": arrays["next_target_q"], "log_prob": arrays["next_log_prob"]}
        sample = _sample(arrays, outputs, jnp.zeros((ROWS, 1)), next_outputs)
        temperature = Variables(params=arrays["log_temperature"], state=())
        variables_by_part = {"actor": EMPTY, "critic": EMPTY, "temperature": temperature}
        learners = {name: SimpleNamespace(variables=v) for name, v in variables_by_part.items()}
        state: Any = SimpleNamespace(learners=learners, target=EMPTY, hyper=agent.hyper)
        batch = ActorCriticBatch(sample=sample, state=state)
        variables = variables_by_part[part]
        return getattr(agent, f"{part}_loss")(variables, batch, jax.random.key(0))[0]

    return function, texts


def _read_only(function: Loss, arguments: Arguments) -> Arguments:
    """Leave out the arguments that a loss does not read."""
    specs = {each.name: each.spec for each in arguments.items}
    zeros = {name: jnp.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}
    indices = leaves_read(lambda batch: function(**batch), zeros)
    names_read = {name for index, name in enumerate(sorted(zeros)) if index in indices}
    return replace(
        arguments,
        items=tuple(argument for argument in arguments.items if argument.name in names_read),
    )


def _by_position(function: Loss, arguments: Arguments, all_arguments: Arguments) -> Loss:
    """Take the arguments that a loss reads, in order; the others are zeros."""
    names = arguments.names
    unread = [each for each in all_arguments.items if each.name not in names]

    def loss(*values: jax.Array) -> jax.Array:
        zeros = {each.name: jnp.zeros(each.spec.shape, each.spec.dtype) for each in unread}
        return function(**zeros, **dict(zip(names, values, strict=True)))

    return loss
