"""Initial arrays of a PyTorch module, drawn by its own constructor as a function of a key."""

import threading
from collections.abc import Callable
from typing import TypeAlias

import jax
import numpy as np
import torch
from torch.utils._mode_utils import no_dispatch

from ...core.errors import TriglotError, user_error_context
from ..objects import constants_of
from .modules import Skeleton, arrays_of
from .running import Generators, JaxEnvironment, running

Construct: TypeAlias = Callable[[], torch.nn.Module]
SEED = 0
SEEDING = threading.Lock()  # PyTorch's generator belongs to the process


def construct(factory: Construct, shown: str, seed: int = SEED) -> torch.nn.Module:
    """Construct a module with PyTorch's own random numbers, and leave its generator as it was.

    Raises:
      TriglotError: if the constructor fails or returns something else than a module.
    """
    with user_error_context(f"the constructor of {shown} failed when called without arguments"):
        with SEEDING, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = factory()
        if not isinstance(module, torch.nn.Module):
            raise TriglotError(
                f"from_torch takes a torch.nn.Module or a function that returns one; {shown} "
                f"returned a {type(module).__name__}."
            )
    return module


def drawing(
    factory: Construct, skeleton: Skeleton, shown: str, *, trusted: bool
) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Return the function of a key that draws a module's arrays.

    The constructor runs with JAX if its initial arrays are then those of PyTorch, given the same
    random numbers. If not, it runs with PyTorch on the host, seeded by the key, in a callback.

    Args:
      factory: the constructor.
      skeleton: of the module that `construct` made with `SEED`.
      shown: the module.
      trusted: whether the constructor is known to give PyTorch's initial arrays with JAX.
    """
    constants = constants_of(factory)
    expected = {**skeleton.params, **skeleton.state}
    shapes = {name: jax.ShapeDtypeStruct(a.shape, _dtype(a)) for name, a in expected.items()}

    def with_jax(key: jax.Array | None, env: JaxEnvironment | None = None) -> dict[str, jax.Array]:
        # A generator that a constructor makes has a fixed seed, with PyTorch too.
        with running(key, env, Generators()), constants():
            return arrays_of(factory())

    def on_host(seed: np.ndarray) -> dict[str, np.ndarray]:
        initial = Skeleton(construct(factory, shown, int(seed)), shown)
        drawn = {**initial.params, **initial.state}
        return {name: drawn[name].astype(shape.dtype) for name, shape in shapes.items()}

    def with_callback(key: jax.Array) -> dict[str, jax.Array]:
        seed = jax.random.bits(key, dtype="uint32")
        return jax.pure_callback(on_host, shapes, seed, vmap_method="sequential")

    return with_jax if trusted or _is_reproduced(with_jax, expected) else with_callback


def _is_reproduced(
    with_jax: Callable[..., dict[str, jax.Array]], expected: dict[str, np.ndarray]
) -> bool:
    """Check that a constructor gives the same arrays with JAX from PyTorch's random numbers."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            arrays = with_jax(None, _Replaying())
        abstract = jax.eval_shape(with_jax, jax.random.key(SEED))
    except Exception:
        return False
    return arrays.keys() == abstract.keys() == expected.keys() and all(
        arrays[name].shape == array.shape
        and arrays[name].dtype == _dtype(array)
        and np.allclose(arrays[name], array, rtol=1e-4, atol=1e-5)
        for name, array in expected.items()
    )


class _Replaying(JaxEnvironment):
    """Takes random numbers from PyTorch's generator."""

    def draw(
        self, kind: str, shape: tuple[int, ...], generator: torch.Generator | None
    ) -> jax.Array:
        with no_dispatch(), torch._C.DisableTorchFunction():
            empty = torch.empty(shape)
            fill = empty.uniform_ if kind == "uniform" else empty.normal_
            return jax.numpy.asarray(fill(generator=generator).numpy())


def _dtype(array: np.ndarray) -> np.dtype:
    return jax.dtypes.canonicalize_dtype(array.dtype)
