"""`from_nnx`: from an NNX module to a `Network`."""

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import TriglotError, require, user_error_context
from ...core.network import Network, Statistic, Variables
from ...core.types import PyTree, is_key
from ..calling import InitialCarry, bind, display_name, lifted, parameters
from ..naming import normalize_separators, words_of
from ..objects import codec_of, constructor
from ..streams import named_keys

if TYPE_CHECKING:
    from flax import nnx

STREAMS = ("default", "params", "dropout")  # that a constructor gets in any case


def from_nnx(
    module: "nnx.Module | Callable[..., nnx.Module]",
    *,
    name: str | None = None,
    initial_carry: InitialCarry | None = None,
) -> Network:
    """Wrap an NNX module as a `Network`.

    Args:
      module: a class or another constructor that takes `nnx.Rngs`, as `rngs` if it has a parameter
        of that name; or a module, whose weights every training then starts from. The `nnx.Rngs`
        have `params`, `dropout`, every other stream that the constructor asks for, and `default`.
        The module is called on a batch of observations `[B, ...]`; a tuple of inputs becomes
        several arguments. Its `train()` or `eval()` is called first; if `__call__` takes `train`
        (or `training`, `deterministic`, `use_running_average`), it gets that flag, and if it takes
        `rngs`, it gets `nnx.Rngs`.
      name: shown in errors and reports.
      initial_carry: for a recurrent module `(obs, carry) -> (outputs, carry)`:
        `initial_carry(num_envs)` returns the carry `[N, ...]` at an episode's start.

    Returns:
      The network; `params` is an `nnx.State` of the floating-point `nnx.Param`s, `state` one of all
      other variables except random streams, which `apply` rebuilds from its `key`.

    Raises:
      MissingExtra: if Flax is not installed.
      TriglotError: if the constructor fails or returns something else than a module.
    """
    nnx = require("flax.nnx", "flax")
    shown = name or display_name(module)
    is_built = isinstance(module, nnx.Module)
    construct = (lambda key: module) if is_built else _constructor(nnx, module)

    def is_trainable(path: object, value: Any) -> bool:
        del path
        return isinstance(value, nnx.Param) and jnp.issubdtype(value.dtype, jnp.inexact)

    def split(module: Any) -> tuple[Any, PyTree, PyTree, PyTree]:
        """Split a module into its graph, its parameters, its random streams and its state."""
        return nnx.split(module, is_trainable, nnx.RngState, ...)

    structure: list[Any] = []

    def build() -> tuple[PyTree, ...]:
        built = construct(jax.random.key(0))
        if not isinstance(built, nnx.Module):
            structure.append(type(built))
            return ()
        graphdef, *parts = split(built)
        structure.append(graphdef)
        return tuple(parts)

    with user_error_context(f"the NNX constructor {shown!r} failed when given nnx.Rngs"):
        parts = jax.eval_shape(build)
    if not parts:
        raise TriglotError(
            f"from_nnx takes an nnx.Module or a function of nnx.Rngs that returns one; {shown!r} "
            f"returned a {structure[0].__name__}."
        )
    params, streams, state = parts
    # Not that of an abstract module, in which arrays outside of variables, such as the scales of
    # `nnx.WeightNorm`, count as constants.
    (graphdef,) = structure
    abstract = nnx.merge(graphdef, params, streams, state)
    names = parameters(abstract)
    folded = _folded_into_keys(lambda key: split(construct(key))[2], streams)

    def init(key: jax.Array) -> Variables:
        _, params, _, state = split(construct(key))
        return Variables(params=params, state=state)

    def seeded(key: jax.Array) -> PyTree:
        leaves, treedef = jax.tree.flatten(streams)
        keys = iter(folded)
        filled = [
            jnp.vectorize(jax.random.fold_in, excluded={0})(key, next(keys))
            if is_key(leaf)
            else jnp.zeros(leaf.shape, leaf.dtype)
            for leaf in leaves
        ]
        return treedef.unflatten(filled)

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        drawn = jax.random.key(0) if key is None else key
        # Without a copy the merged module shares its Variables with the arguments, and an eager
        # call would change them.
        module = nnx.merge(graphdef, variables.params, seeded(drawn), variables.state, copy=True)
        if train:
            module.train()
        else:
            module.eval()
        args, modes = bind(f"the NNX module {shown!r}", names, inputs, train)
        more = {"rngs": nnx.Rngs(drawn)} if "rngs" in names else {}
        outputs = module(*args, **more, **modes)
        return outputs, split(module)[3] if train else variables.state

    def is_layer(node: object) -> bool:
        return isinstance(node, nnx.Module) and not isinstance(node, nnx.List | nnx.Dict)

    def is_variable(node: object) -> bool:
        return isinstance(node, nnx.Variable)

    statistics = tuple(
        _statistic(path, variable)
        for path, variable in jax.tree_util.tree_leaves_with_path(state, is_leaf=is_variable)
        for _ in jax.tree.leaves(variable)
    )
    return lifted(
        shown,
        "nnx",
        init,
        apply,
        initial_carry,
        codec=codec_of(
            "nnx",
            abstract,
            params,
            is_layer,
            is_parameter=is_variable,
        ),
        statistics=statistics,
        random_start=not is_built,
        value_and_grad=lambda loss: nnx.value_and_grad(loss, has_aux=True),
    )


def _statistic(path: Sequence[object], variable: object) -> Statistic | None:
    """Describe a running statistic by its path and its type in the state."""
    keys = [getattr(key, "key", None) for key in path]
    if keys[-1] in (("kernel", "u"), ("kernel", "sigma")):  # of `nnx.SpectralNorm`
        place = words_of(path[:-2])
        return Statistic(normalize_separators("/".join((*place, keys[-1][1]))))
    words = words_of(path)
    is_known = type(variable).__name__ == "BatchStat" and words[-1] in ("mean", "var")
    return Statistic(normalize_separators("/".join(words))) if is_known else None


def _constructor(nnx: Any, module: Any) -> Callable[[jax.Array], Any]:
    """Return the function of a key that constructs a module, with named streams.

    A name matters: `nnx.split_rngs`, `nnx.StateAxes` and `Rngs.split` choose streams by name.
    """
    asked: set[str] = set()

    class Recording(nnx.Rngs):
        def __getitem__(self, name: str) -> Any:
            asked.add(name)
            return super().__getitem__(name)

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_"):
                asked.add(name)
            return super().__getattr__(name)

        def __call__(self) -> Any:
            asked.add("default")
            return super().__call__()

    try:
        record = constructor(module, "rngs", lambda key: Recording(key))
        nnx.eval_shape(lambda: record(jax.random.key(0)))
    except Exception:  # it may need streams by name; another error comes again
        asked.update(STREAMS)
    return constructor(module, "rngs", lambda key: nnx.Rngs(**named_keys(asked, key, STREAMS)))


def _folded_into_keys(
    streams_of: Callable[[jax.Array], PyTree], abstract: PyTree
) -> list[np.ndarray]:
    """Return for each key of the streams what is folded into the key of a call, uint32.

    Equal keys have equal numbers.

    Args:
      streams_of: constructs a module from a key, and returns its streams.
      abstract: these streams without values.
    """
    if not any(map(is_key, jax.tree.leaves(abstract))):
        return []

    def data(key: jax.Array) -> list[jax.Array]:
        leaves = filter(is_key, jax.tree.leaves(streams_of(key)))
        return [jax.random.key_data(leaf) for leaf in leaves]

    return [
        np.apply_along_axis(
            lambda words: zlib.crc32(words.tobytes()), -1, np.asarray(words)
        ).astype(np.uint32)
        for words in jax.jit(data)(jax.random.key(0))
    ]
