"""Optimizers as functions of an agent's hyperparameters.

An agent has one field `optimizer`: `hyper -> optax.GradientTransformation`. It is called inside the
compiled update with the traced hyperparameters, so that a sweep over them is one program. Each one
here reads `hyper.learning_rate`, and what else it knows where the hyperparameters have it:
`max_grad_norm` (clip the global gradient norm first), `adam_eps`, `adam_b1`, `rmsprop_decay` and
`rmsprop_eps`. A number of None is optax's.
"""

from typing import Any, Protocol, runtime_checkable

import jax
import optax

from ..errors import TriglotError, user_error_context
from ..types import AnyHyperparams


@runtime_checkable
class OptimizerFn(Protocol):
    """A function of an agent's hyperparameters that builds its optimizer."""

    def __call__(self, hyper: AnyHyperparams, /) -> optax.GradientTransformation:
        """Build the optimizer; called while tracing, so that hyperparameters may be traced."""
        ...


def adam(hyper: AnyHyperparams) -> optax.GradientTransformation:
    """Build Adam (Kingma and Ba 2015, https://arxiv.org/abs/1412.6980)."""
    b1 = getattr(hyper, "adam_b1", 0.9)
    return _clipped(hyper, optax.adam(hyper.learning_rate, b1, eps=_adam_eps(hyper)))


def adamw(hyper: AnyHyperparams) -> optax.GradientTransformation:
    """Build Adam with optax's decoupled weight decay (https://arxiv.org/abs/1711.05101)."""
    return _clipped(hyper, optax.adamw(hyper.learning_rate, eps=_adam_eps(hyper)))


def lion(hyper: AnyHyperparams) -> optax.GradientTransformation:
    """Build Lion (Chen et al. 2023, https://arxiv.org/abs/2302.06675)."""
    return _clipped(hyper, optax.lion(hyper.learning_rate))


def radam(hyper: AnyHyperparams) -> optax.GradientTransformation:
    """Build rectified Adam (Liu et al. 2020, https://arxiv.org/abs/1908.03265)."""
    return _clipped(hyper, optax.radam(hyper.learning_rate, eps=_adam_eps(hyper)))


def rmsprop(hyper: AnyHyperparams) -> optax.GradientTransformation:
    """Build RMSProp: step -learning_rate * g / sqrt(v + eps), v = decay * v + (1 - decay) * g^2.

    Source: Tieleman and Hinton 2012, lecture 6.5; with epsilon inside the root, as in Mnih et al.
    2016, https://arxiv.org/abs/1602.01783, equation S2. Their decay is 0.99, and 0.1 the epsilon
    with which their results are reproduced; optax's, the defaults here, are 0.9 and 1e-8.
    """
    names = {"decay": "rmsprop_decay", "eps": "rmsprop_eps"}
    fields_by_option = {name: getattr(hyper, field, None) for name, field in names.items()}
    options: Any = {name: number for name, number in fields_by_option.items() if number is not None}
    return _clipped(hyper, optax.rmsprop(hyper.learning_rate, **options))


def sgd(hyper: AnyHyperparams) -> optax.GradientTransformation:
    """Build plain gradient descent."""
    return _clipped(hyper, optax.sgd(hyper.learning_rate))


OPTIMIZERS: dict[str, OptimizerFn] = {
    f.__name__: f for f in (adam, adamw, lion, radam, rmsprop, sgd)
}


def check_optimizer(owner: str, optimizer: OptimizerFn, hyper: AnyHyperparams) -> None:
    """Refuse an optimizer that is not a function of hyperparameters; nothing compiles.

    Args:
      owner: the algorithm's name, for the message.
      optimizer: as an agent's field.
      hyper: the hyperparameters it is called with.

    Raises:
      TriglotError: saying what was given.
    """
    wanted = (
        f"{owner}'s optimizer must be a function of its hyperparameters that returns an "
        "optax.GradientTransformation, such as lambda hyper: optax.adam(hyper.learning_rate)"
    )
    if isinstance(optimizer, optax.GradientTransformation) or not callable(optimizer):
        raise TriglotError(f"{wanted}; got a {type(optimizer).__name__}.")
    with user_error_context(f"{wanted}; it failed"):
        transformation = optimizer(hyper)
    if not isinstance(transformation, optax.GradientTransformation):
        raise TriglotError(f"{wanted}; it returned a {type(transformation).__name__}.")


def is_read(optimizer: OptimizerFn, hyper: AnyHyperparams, name: str) -> bool:
    """Return whether an optimizer may read a hyperparameter; it is built once, to find out.

    Args:
      optimizer: a function of hyperparameters.
      hyper: the hyperparameters, numbers.
      name: of one of them.
    """
    read = set()

    class Recorder:
        def __getattr__(self, name: str) -> Any:
            read.add(name)
            return getattr(hyper, name)

    try:
        optimizer(Recorder())
    except Exception:  # it does more with them than read attributes
        return True
    return name in read


def _clipped(
    hyper: AnyHyperparams, optimizer: optax.GradientTransformation
) -> optax.GradientTransformation:
    max_grad_norm = getattr(hyper, "max_grad_norm", None)
    if max_grad_norm is None:
        return optimizer
    return optax.chain(optax.clip_by_global_norm(max_grad_norm), optimizer)


def _adam_eps(hyper: AnyHyperparams) -> float | jax.Array:
    return getattr(hyper, "adam_eps", 1e-8)
