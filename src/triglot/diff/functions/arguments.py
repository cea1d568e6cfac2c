"""The arguments of a loss, a target or an update step, and batches of them."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import TriglotError, shown, unknown
from ...core.specs import Box, Discrete, MultiDiscrete, sample
from ..inputs import parse_input

Draw: TypeAlias = Callable[[jax.Array, Box], jax.Array]
MAX_LOG_PROB, MIN_LOG_PROB = -0.05, -2.5
ENDS = 0.2  # share of steps that end an episode
FILE = ".npz"
INPUT_FORM = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<kind>[A-Za-z]\w*)(?::(?P<rest>.*))?")


class Kind(NamedTuple):
    """What an argument is, in reinforcement learning.

    Attributes:
      dtype: dtype of its arrays.
      draw: draws an array from a key and a spec.
      text: description for the help.
    """

    dtype: str
    draw: Draw
    text: str


def _uniform(low: float, high: float) -> Draw:
    return lambda key, spec: jax.random.uniform(key, spec.shape, spec.dtype, low, high)


def _normal(key: jax.Array, spec: Box) -> jax.Array:
    return jax.random.normal(key, spec.shape, spec.dtype)


def _flag(key: jax.Array, spec: Box) -> jax.Array:
    return jax.random.bernoulli(key, ENDS, spec.shape).astype(spec.dtype)


def _discount(key: jax.Array, spec: Box) -> jax.Array:
    ended, size = jax.random.split(key)
    discount = jax.random.uniform(size, spec.shape, spec.dtype, 0.9, 1.0)
    return jnp.where(jax.random.bernoulli(ended, ENDS, spec.shape), 0, discount)


def _distribution(key: jax.Array, spec: Box) -> jax.Array:
    return jax.nn.softmax(jax.random.normal(key, spec.shape, spec.dtype))


def _gradient(key: jax.Array, spec: Box) -> jax.Array:
    normal, size = jax.random.split(key)
    exponent = jax.random.uniform(size, spec.shape, spec.dtype, -4, 0.5)
    return jax.random.normal(normal, spec.shape, spec.dtype) * 10**exponent


KINDS: Mapping[str, Kind] = {
    "action": Kind("int32", lambda key, spec: sample(spec, key), "integers, 0..1 without bounds"),
    "advantage": Kind("float32", lambda key, spec: 1.5 * _normal(key, spec) + 0.3, "normal"),
    "discount": Kind("float32", _discount, "from 0.9 to 1, and 0 where an episode ends"),
    "distribution": Kind("float32", _distribution, "sums to 1 along the last axis"),
    "flag": Kind("float32", _flag, f"1 with probability {ENDS}, else 0"),
    "gradient": Kind("float32", _gradient, "normal, times 1e-4 to 3"),
    "log_prob": Kind("float32", _uniform(MIN_LOG_PROB, MAX_LOG_PROB),
                     f"from {MIN_LOG_PROB} to {MAX_LOG_PROB}"),
    "logits": Kind("float32", _normal, "normal"),
    "param": Kind("float32", _normal, "normal; what is learned: gradients are compared"),
    "probability": Kind("float32", _uniform(0.05, 0.95), "from 0.05 to 0.95"),
    "return": Kind("float32", _normal, "normal"),
    "reward": Kind("float32", _normal, "normal"),
    "square": Kind("float32", lambda key, spec: _gradient(key, spec) ** 2, "squares of gradients"),
    "step": Kind("int32", lambda key, spec: sample(spec, key), "a count, 1..1000 without bounds"),
    "value": Kind("float32", _normal, "normal"),
    "weight": Kind("float32", _uniform(0.1, 1.0), "from 0.1 to 1"),
}  # fmt: skip
LEARNED = "param"
BOUNDS = {"action": (0, 1), "step": (1, 1000)}


@dataclass(frozen=True)
class Argument:
    """One argument.

    Attributes:
      name: the parameter of the function that gets it.
      spec: its shape, dtype and bounds.
      kind: one of `KINDS`; empty to draw uniformly within the bounds.
    """

    name: str
    spec: Box
    kind: str = ""

    @property
    def is_learned(self) -> bool:
        """Whether gradients by it are compared."""
        return self.kind == LEARNED

    def draw(self, key: jax.Array) -> jax.Array:
        """Draw an array."""
        return KINDS[self.kind].draw(key, self.spec) if self.kind else sample(self.spec, key)

    def __str__(self) -> str:
        return f"{self.name}: {self.spec.dtype} [{', '.join(map(str, self.spec.shape))}]"


@dataclass(frozen=True, eq=False)
class Arguments:
    """The arguments of two functions, in order.

    Attributes:
      items: arguments that are drawn.
      constants: Python numbers by name, which are not traced.
      recorded: arrays by name, of a batch that is not drawn.
    """

    items: tuple[Argument, ...]
    constants: Mapping[str, float] = field(default_factory=dict)
    recorded: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [*(each.name for each in self.items), *self.constants, *self.recorded]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise TriglotError(f"the input {duplicates[0]!r} is given twice: give each name once.")
        if not names:
            raise TriglotError("no input is given: name the arguments of both functions.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all arrays, in order."""
        return (*(each.name for each in self.items), *self.recorded)

    @property
    def learned(self) -> dict[str, Argument]:
        """Arguments by which gradients are compared."""
        return {each.name: each for each in self.items if each.is_learned}

    def draw(self, size: int, key: jax.Array) -> dict[str, jax.Array]:
        """Draw batches `[size, ...]` of all arguments that are not learned.

        The first batch of a recording is the recorded one; the others repeat some of its rows.
        """
        keys = jax.random.split(key, len(self.items) + 1)
        batches = {
            argument.name: jax.vmap(argument.draw)(jax.random.split(argument_key, size))
            for argument, argument_key in zip(self.items, keys[1:], strict=True)
            if not argument.is_learned
        }
        return batches | self._resample(size, keys[0])

    def _resample(self, size: int, key: jax.Array) -> dict[str, jax.Array]:
        lengths = [array.shape[0] for array in self.recorded.values() if array.ndim]
        length = max(set(lengths), key=lengths.count, default=1)
        rows = jax.random.randint(key, (size, length), 0, length).at[0].set(jnp.arange(length))
        return {
            name: jnp.asarray(array)[rows]
            if array.ndim and array.shape[0] == length
            else jnp.broadcast_to(jnp.asarray(array), (size, *array.shape))
            for name, array in self.recorded.items()
        }

    def __str__(self) -> str:
        arrays = [
            f"{name}: {array.dtype} [{', '.join(map(str, array.shape))}]"
            for name, array in self.recorded.items()
        ]
        constants = [f"{name} = {number:g}" for name, number in self.constants.items()]
        return ", ".join([*map(str, self.items), *arrays, *constants])


def names_arguments(texts: Iterator[str] | tuple[str, ...]) -> bool:
    """Return whether inputs are those of a function of a batch: one has a name, or is a file."""
    return any(map(_is_argument, texts))


def _is_argument(text: str) -> bool:
    return "=" in text or text.endswith(FILE) or text.partition(":")[0] in KINDS


def parse_arguments(texts: tuple[str, ...]) -> Arguments:
    """Read the arguments of a function of a batch from `--inputs`.

    Each is `NAME=DTYPE:SHAPE`, `NAME=DTYPE:SHAPE:LOW..HIGH`, the same with one of `KINDS` in place
    of the dtype, `NAME=NUMBER`, or a file `.npz` with arrays by name. Shapes include the batch.
    Without a name, it is that of the kind.

    >>> print(parse_arguments(("obs=float32:32,4", "log_prob:32", "gamma=0.99")))
    obs: float32 [32, 4], log_prob: float32 [32], gamma = 0.99

    Raises:
      TriglotError: if one has another form, or a file cannot be read.
    """
    items: list[Argument] = []
    constants: dict[str, float] = {}
    recorded: dict[str, np.ndarray] = {}
    for index, text in enumerate(texts):
        if text.endswith(FILE):
            recorded |= _read_batch(text)
            continue
        name, equals, description = text.partition("=")
        if equals and (number := _number(description)) is not None:
            constants[name] = number
            continue
        items.append(_parse_argument(text, index))
    return Arguments(tuple(items), constants, recorded)


def _number(text: str) -> float | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _parse_argument(text: str, index: int) -> Argument:
    form = INPUT_FORM.fullmatch(text)
    if form is None:
        raise TriglotError(
            f"input {shown(text)} must have the form NAME=DTYPE:SHAPE, such as obs=float32:32,4, "
            "NAME=KIND:SHAPE, such as old_value=value:32, NAME=NUMBER, or be a file .npz."
        )
    name, kind, shape_and_bounds = form["name"], form["kind"], form["rest"] or ""
    if kind not in KINDS:
        try:
            np.dtype(jnp.dtype(kind))
        except TypeError:
            raise unknown("kind of input", kind, sorted(KINDS)) from None
        return Argument(name or f"input_{index}", parse_input(f"{kind}:{shape_and_bounds}"))
    spec = parse_input(f"{KINDS[kind].dtype}:{shape_and_bounds}")
    if kind in BOUNDS and shape_and_bounds.count(":") == 0:
        low, high = BOUNDS[kind]
        spec = Box(spec.shape, spec.dtype, low, high)
    return Argument(name or kind, spec, kind)


def _read_batch(path: str) -> dict[str, np.ndarray]:
    try:
        with np.load(Path(path), allow_pickle=False) as file:
            return {name: np.asarray(file[name]) for name in file.files}
    except (OSError, ValueError) as error:
        raise TriglotError(f"{path} cannot be read as a batch (.npz): {error}.") from None


def arguments_of(inputs: Mapping[str, object]) -> Arguments:
    """Read the arguments of a function of a batch in Python.

    Args:
      inputs: by name, a spec of the whole array, a text `DTYPE:SHAPE` or `KIND:SHAPE` as for
        `--inputs`, a Python number, which is not traced, or an array of a recorded batch.

    Raises:
      TriglotError: if one is something else.
    """
    items: list[Argument] = []
    constants: dict[str, float] = {}
    recorded: dict[str, np.ndarray] = {}
    for name, value in inputs.items():
        if isinstance(value, str):
            items.append(_parse_argument(f"{name}={value}", 0))
        elif isinstance(value, Box):
            items.append(Argument(name, value))
        elif isinstance(value, Discrete | MultiDiscrete):
            low, high = value.bounds()
            items.append(Argument(name, Box(value.shape, value.dtype, int(low), int(np.max(high)))))
        elif isinstance(value, bool | int | float):
            constants[name] = value
        elif isinstance(value, np.ndarray | jax.Array):
            recorded[name] = np.asarray(value)
        else:
            raise TriglotError(
                f"the input {name!r} is a {type(value).__name__}; expected a spec such as "
                "Box((32, 4)), a text such as 'log_prob:32', a number or an array."
            )
    return Arguments(tuple(items), constants, recorded)
