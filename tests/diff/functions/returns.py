"""Off-policy targets and a loss with a target network, with differences that a test plants."""

from typing import Any

import jax
import jax.numpy as jnp

V_TRACE = {
    "reward": "reward:8,4",
    "discount": "discount:8,4",
    "value": "value:8,4",
    "last_value": "value:4",
    "log_ratio": "float32:8,4:-1..1",
}
LAMBDA = {key: V_TRACE[key] for key in ("reward", "discount", "value", "last_value")}
ATOMS = 11
PROJECTION = {
    "reward": "reward:8",
    "discount": "discount:8",
    "probabilities": f"float32:8,{ATOMS}:0..1",
}
Q_LEARNING = {
    "obs": "float32:16,4",
    "action": "action:16:0..2",
    "reward": "reward:16",
    "discount": "discount:16",
    "next_obs": "float32:16,4",
}


def v_trace(planted: str = "") -> Any:
    """Build V-trace targets: Espeholt et al. 2018, https://arxiv.org/abs/1802.01561, eq. 1."""

    def targets(
        reward: jax.Array,
        discount: jax.Array,
        value: jax.Array,
        last_value: jax.Array,
        log_ratio: jax.Array,
    ) -> jax.Array:
        ratio = jnp.exp(log_ratio)
        rho = jnp.minimum(2.0 if planted == "rho" else 1.5, ratio)  # clipped rho
        trace = ratio if planted == "trace" else jnp.minimum(1.0, ratio)  # clipped trace
        after = jnp.concatenate([value[1:], last_value[None]])
        delta = rho * (reward + discount * after - value)

        def step(carry: jax.Array, row: Any) -> tuple[jax.Array, jax.Array]:
            d, rate, c = row
            total = d + rate * c * carry
            return total, total

        rows = (delta, discount, trace)
        _, correction = jax.lax.scan(step, jnp.zeros_like(last_value), rows, reverse=True)
        return value + correction

    return targets


def v_trace_in_a_loop(
    reward: jax.Array,
    discount: jax.Array,
    value: jax.Array,
    last_value: jax.Array,
    log_ratio: jax.Array,
) -> jax.Array:
    """Compute the same targets in a loop of Python."""
    ratio = jnp.exp(log_ratio)
    rho, trace = jnp.clip(ratio, None, 1.5), jnp.clip(ratio, None, 1.0)
    target, after, rows = last_value, last_value, []
    for t in reversed(range(reward.shape[0])):
        error = reward[t] + discount[t] * after - value[t]
        target = value[t] + rho[t] * error + discount[t] * trace[t] * (target - after)
        after = value[t]
        rows.append(target)
    return jnp.stack(rows[::-1])


def lambda_returns(planted: str = "", trace: float = 0.95) -> Any:
    """Build lambda-returns: Sutton and Barto 2018, eq. 12.18."""

    def returns(
        reward: jax.Array, discount: jax.Array, value: jax.Array, last_value: jax.Array
    ) -> jax.Array:
        after = jnp.concatenate([value[1:], last_value[None]])
        if planted == "shift":
            after = value  # of the wrong step

        def step(carry: jax.Array, row: Any) -> tuple[jax.Array, jax.Array]:
            r, rate, v = row
            total = r + rate * ((1 - trace) * v + trace * carry)  # the mixture
            return total, total

        return jax.lax.scan(step, last_value, (reward, discount, after), reverse=True)[1]

    return returns


def lambda_returns_of_errors(
    reward: jax.Array, discount: jax.Array, value: jax.Array, last_value: jax.Array
) -> jax.Array:
    """Compute the same returns as values and sums of temporal-difference errors."""
    after = jnp.concatenate([value[1:], last_value[None]])
    errors, total, rows = reward + discount * after - value, jnp.zeros_like(last_value), []
    for t in reversed(range(reward.shape[0])):
        total = errors[t] + discount[t] * 0.95 * total
        rows.append(value[t] + total)
    return jnp.stack(rows[::-1])


def projection(planted: str = "") -> Any:
    """Build C51's projection: Bellemare et al. 2017, https://arxiv.org/abs/1707.06887, alg. 1."""

    def project(reward: jax.Array, discount: jax.Array, probabilities: jax.Array) -> jax.Array:
        atoms = jnp.linspace(-2.0, 2.0, ATOMS)
        width = 4.0 / (ATOMS if planted == "width" else ATOMS - 1)  # between atoms
        moved = reward[:, None] + discount[:, None] * atoms[None]
        if planted != "no clip":
            moved = jnp.clip(moved, -2.0, 2.0)  # to the support
        distance = jnp.abs(moved[:, None, :] - atoms[None, :, None]) / width  # in atoms
        share = jnp.clip(1.0 - distance, 0.0, 1.0)
        return jnp.sum(share * probabilities[:, None, :], -1)

    return project


def projection_by_index(
    reward: jax.Array, discount: jax.Array, probabilities: jax.Array
) -> jax.Array:
    """Compute the same projection from the positions of the moved atoms."""
    atoms = jnp.linspace(-2.0, 2.0, ATOMS)
    moved = jnp.clip(reward[:, None] + discount[:, None] * atoms[None], -2.0, 2.0)
    position, places = (moved + 2.0) / 0.4, jnp.arange(ATOMS, dtype=jnp.float32)
    share = jnp.maximum(0.0, 1.0 - jnp.abs(position[:, None, :] - places[None, :, None]))
    return jnp.einsum("bij,bj->bi", share, probabilities)


def network(params: Any, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ params["hidden"]) @ params["out"]


def q_learning(planted: str = "") -> tuple[Any, Any]:
    """Build the loss of DQN, whose bootstrap is of the target network."""

    def init(key: jax.Array) -> Any:
        names = ("online", "target")
        shapes = {"hidden": (4, 8), "out": (8, 3)}
        return {
            name: {
                layer: jax.random.normal(jax.random.fold_in(own, i), shape)
                for i, (layer, shape) in enumerate(shapes.items())
            }
            for name, own in zip(names, jax.random.split(key), strict=True)
        }

    def loss(
        params: Any,
        obs: jax.Array,
        action: jax.Array,
        reward: jax.Array,
        discount: jax.Array,
        next_obs: jax.Array,
    ) -> jax.Array:
        read = "online" if planted else "target"
        after = jnp.max(network(params[read], next_obs), -1)  # the bootstrap
        target = jax.lax.stop_gradient(reward + discount * after)
        value = jnp.take_along_axis(network(params["online"], obs), action[:, None], -1)[:, 0]
        return jnp.mean((value - target) ** 2)

    return init, loss


def q_learning_by_one_hot() -> tuple[Any, Any]:
    """Build the same loss, which chooses values by a product."""
    init, _ = q_learning()

    def loss(
        params: Any,
        obs: jax.Array,
        action: jax.Array,
        reward: jax.Array,
        discount: jax.Array,
        next_obs: jax.Array,
    ) -> jax.Array:
        target = reward + discount * network(params["target"], next_obs).max(1)
        chosen = jax.nn.one_hot(action, 3) * network(params["online"], obs)
        error = jax.lax.stop_gradient(target) - chosen.sum(1)
        return (error * error).sum() / error.size

    return init, loss
