"""Where the time of an update of PPO goes: each part of it alone, beside the whole.

    taskset -c 0 python -m benchmarks.account

The parts are those of `benchmarks.plain_ppo`, the PPO in plain JAX, at its setting (4 environments,
128 steps, 16 gradient steps on two networks of 64 units twice, CartPole-v1). Each is a program that
repeats only this part, on what the one before it left, so that nothing can be left out of the loop.
A part alone may take a little more than in the whole program, where XLA joins it with its
neighbours; what the whole takes beyond the sum is its last line.

The products alone are the matrix products of the rollout and the gradient steps at their shapes,
without anything between them; the last column says how long they would take at this machine's
matrix peak, which large products reach.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import tyro

from . import harness, peak, plain_ppo, seams

WHOLE, TRIGLOT, PRODUCTS, PEAK = "the whole, plain JAX", "triglot", "products alone", "peak"
ENVIRONMENT, ROLLOUT = "environment steps", "environment steps and actor"
PARTS = ("random numbers", ENVIRONMENT, "actor", "values and returns", "shuffling",
         "losses and gradients", "clipping and Adam")  # fmt: skip
HEADER = ("part", "µs per update", "share of the whole [95%]", "GFLOP/s of products")

State = dict[str, Any]
Part = Callable[[State], State]


def linear(params: Mapping[str, Any], inputs: jax.Array) -> jax.Array:
    """Apply the products of `plain_ppo.mlp`, and nothing else."""
    for layer in ("linear_0", "linear_1", "head"):
        inputs = inputs @ params[layer]["w"]
    return inputs


def parts_of(config: plain_ppo.Config) -> dict[str, Part]:
    """Write each part as a function of a state that holds what all of them read and write."""
    optimizer = plain_ppo.optimizer(config)

    def random_numbers(state: State) -> State:
        key, draw_key, _ = plain_ppo.split(state["key"])
        return {**state, "key": key, "drawn": plain_ppo.draw(config, draw_key)}

    def steps(state: State, *, acts: bool) -> State:
        actor = state["params"]["actor"] if acts else None
        carry, seen = plain_ppo.collect(actor, state["carry"], state["drawn"])
        return {**state, "carry": carry, "seen": seen}

    def values(state: State) -> State:
        # The rewards change, so that no iteration computes what the one before it did.
        seen = {**state["seen"], "reward": state["seen"]["reward"] * 0.99}
        seen["obs"] = state["rollout"]["obs"] * 0.99
        rollout = plain_ppo.targets(config, state["params"]["critic"], seen)
        return {**state, "seen": seen, "rollout": rollout}

    def shuffling(state: State) -> State:
        key, _, shuffle_key = plain_ppo.split(state["key"])
        return {
            **state,
            "key": key,
            "batches": plain_ppo.shuffle(config, shuffle_key, state["rollout"]),
        }

    def gradients(state: State) -> State:
        def one(params: Any, batch: Any) -> tuple[Any, Any]:
            grads, metrics = jax.grad(plain_ppo.loss, argnums=1, has_aux=True)(
                config, params, batch
            )
            return jax.tree.map(lambda p, g: p - 1e-6 * g, params, grads), metrics

        params, metrics = jax.lax.scan(one, state["params"], state["batches"])
        return {**state, "params": params, "metrics": jax.tree.map(jnp.mean, metrics)}

    def adam(state: State) -> State:
        def one(carry: Any, _: None) -> tuple[Any, None]:
            params, opt_state = carry
            updates, opt_state = optimizer.update(state["grads"], opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), None

        carry = state["params"], state["opt_state"]
        length = config.num_epochs * config.num_minibatches
        (params, opt_state), _ = jax.lax.scan(one, carry, length=length)
        return {**state, "params": params, "opt_state": opt_state}

    def products(state: State) -> State:
        def rolled(obs: jax.Array, _: None) -> tuple[jax.Array, None]:
            return obs + 1e-6 * linear(state["params"]["actor"], obs).sum(), None

        def one(params: Any, obs: jax.Array) -> tuple[Any, None]:
            def total(params: Any) -> jax.Array:
                return jnp.stack([linear(one, obs).sum() for one in params.values()]).sum()

            grads = jax.grad(total)(params)
            return jax.tree.map(lambda p, g: p - 1e-9 * g, params, grads), None

        obs, _ = jax.lax.scan(rolled, state["carry"]["obs"], length=config.rollout_length)
        seen = state["seen"]["obs"] + 1e-6 * linear(state["params"]["critic"], state["seen"]["obs"])
        params, _ = jax.lax.scan(one, state["params"], state["batches"]["obs"])
        carry = {**state["carry"], "obs": obs}
        return {**state, "carry": carry, "params": params, "seen": {**state["seen"], "obs": seen}}

    return {
        "random numbers": random_numbers,
        ENVIRONMENT: functools.partial(steps, acts=False),
        ROLLOUT: functools.partial(steps, acts=True),
        "values and returns": values,
        "shuffling": shuffling,
        "losses and gradients": gradients,
        "clipping and Adam": adam,
        PRODUCTS: products,
    }


def whole_state(config: plain_ppo.Config, parts: Mapping[str, Part]) -> State:
    """Build what the parts read, by going through them once."""
    started = plain_ppo.init(config, jax.random.key(0))
    carry = {name: started[name] for name in ("obs", "env_state", "episode_return")}
    carry |= {"ended": jnp.zeros(()), "ended_return": jnp.zeros(())}
    state = {"key": started["key"], "params": started["params"], "carry": carry,
             "opt_state": started["opt_state"]}  # fmt: skip
    state = parts[ROLLOUT](parts["random numbers"](state))
    state["rollout"] = plain_ppo.targets(config, state["params"]["critic"], state["seen"])
    state = parts["shuffling"](state)
    batch = jax.tree.map(lambda leaf: leaf[0], state["batches"])
    loss = functools.partial(plain_ppo.loss, config)
    state["grads"], state["metrics"] = jax.grad(loss, has_aux=True)(state["params"], batch)
    return state


def repeated(part: Part, num_updates: int) -> Callable[[State], State]:
    """Compile a program that repeats a part."""

    def run(state: State) -> State:
        return jax.lax.scan(lambda one, _: (part(one), None), state, length=num_updates)[0]

    return jax.jit(run)


def main(
    updates: int = 64,
    rounds: int = 20,
    backend: str = "linen",
    out: Path = Path("benchmarks/results/account.json"),
) -> None:
    """Time each part, the whole, and triglot's program in interleaved rounds; print the table.

    Args:
      updates: that a timed program repeats.
      rounds: of which medians are shown.
      backend: library of triglot's network.
      out: the JSON file, overwritten.
    """
    config = replace(plain_ppo.Config(), second_pass=False)
    parts = parts_of(config)
    state = whole_state(config, parts)
    programs = {
        name: functools.partial(repeated(part, updates), state) for name, part in parts.items()
    }
    for name, program in (
        (WHOLE, seams.plain(config, updates, None, steps=0, baselines=())),
        (TRIGLOT, _ours(config, updates, backend)),
    ):
        programs[name] = functools.partial(program.function, program.state)
    seconds = harness.measure({**programs, PEAK: peak.product}, rounds=rounds)
    seconds["actor"] = seconds[ROLLOUT] - seconds[ENVIRONMENT]
    seconds["the rest of the whole"] = seconds[WHOLE] - sum(seconds[name] for name in PARTS)
    flops = peak.matrix_flops(jax.make_jaxpr(parts[PRODUCTS])(state).jaxpr)
    per_peak = seconds[PEAK] / peak.FLOPS  # seconds of an operation
    rows = []
    for name in (*PARTS, "the rest of the whole", WHOLE, TRIGLOT, PRODUCTS):
        took = harness.interval(seconds[name] / updates * 1e6)
        speed = flops * updates / seconds[name] / 1e9
        rows.append([
            name, f"{took.median:,.0f}", harness.time_ratio(seconds, name, WHOLE),
            f"{harness.interval(speed).median:.1f}" if name in (WHOLE, TRIGLOT, PRODUCTS) else "",
        ])  # fmt: skip
    at_peak = harness.interval(flops * per_peak * 1e6)
    shares = harness.interval(flops * per_peak * updates / seconds[WHOLE])
    rows.append(
        ["products at the peak", f"{at_peak.median:,.0f}", shares,
         f"{harness.interval(1e-9 / per_peak).median:.1f}"]
    )  # fmt: skip
    print(harness.table(HEADER, rows))
    harness.write_json(
        out,
        {"machine": harness.environment(), "flops": flops, "updates": updates, "seconds": seconds},
    )
    print(f"written to {out}")


def _ours(config: plain_ppo.Config, updates: int, backend: str) -> seams.Program:
    trainer = seams.trainer_of(config, updates, backend)
    return seams.program(trainer.init, trainer.train_chunk, None, steps=0, baselines=())


if __name__ == "__main__":
    tyro.cli(main)
