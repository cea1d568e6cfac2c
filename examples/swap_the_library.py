"""Train one agent on four network libraries; run it with `python examples/swap_the_library.py`."""

import jax

import triglot

env = triglot.make_env("gymnax:CartPole-v1")
for backend in ("haiku", "linen", "nnx", "equinox"):
    agent = triglot.make_agent("ppo", env, backend=backend)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=100_000, num_seeds=4)
    play = jax.vmap(lambda state, key, a=agent: triglot.evaluate(a, env, state, key).returns)
    returns = play(result.runner_state.agent, jax.random.split(jax.random.key(1), 4))
    print(f"{backend:<8} greedy return {returns.mean():.1f}")
