"""A whole process of one framework, from Python's start to the end of a short training.

python -m benchmarks.peers.cold rejax 51200 linen
"""

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path

from .. import harness

TOTAL_STEPS = 51_200


def thunks(total_steps: int, backend: str, purejaxrl: Path | None) -> dict[str, harness.Thunk]:
    """Build a function for each installed framework, which runs its process."""
    found = {"triglot": [], "PureJaxRL": [str(purejaxrl)], "rejax": []}
    if purejaxrl is None:
        del found["PureJaxRL"]
        print("PureJaxRL is left out: give --purejaxrl the folder of a clone of its repository.")
    if importlib.util.find_spec("rejax") is None:
        del found["rejax"]
        print("rejax is left out: pip install --no-deps rejax.")

    def start(name: str, words: list[str]) -> None:
        command = [sys.executable, "-m", "benchmarks.peers.cold", name, str(total_steps), backend]
        subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)

    return {name: functools.partial(start, name, words) for name, words in found.items()}


def report(seconds: harness.Seconds, total_steps: int) -> str:
    """Format the seconds of each framework."""
    rows = [
        [
            name,
            f"{harness.interval(taken).median:.1f}",
            harness.time_ratio(seconds, name, "triglot"),
        ]
        for name, taken in seconds.items()
    ]
    title = f"a whole process: PPO on CartPole-v1, 1 seed, {total_steps:,} steps, no cache"
    return title + "\n" + harness.table(["framework", "s", "triglot is x times as fast"], rows)


def main(name: str, total_steps: int, backend: str, folder: str | None = None) -> None:
    """Import, compile and train, as a user of the framework does."""
    import jax

    from .rows import PPO

    jax.config.update("jax_enable_compilation_cache", False)
    if name == "triglot":
        import triglot

        env = triglot.make_env(f"gymnax:{PPO.env_id}")
        agent = triglot.make_agent("ppo", env, backend=backend, config=PPO.config, hyper=PPO.hyper)
        triglot.train(agent, env, key=jax.random.key(0), total_steps=total_steps)
        return
    if name == "rejax":
        from .rejax import contender
    else:
        from .purejaxrl import contender
    made = contender(PPO, total_steps, None if folder is None else Path(folder))
    train, _ = made.compile(jax.random.split(jax.random.key(0), (1, 1)))
    jax.block_until_ready(train(0))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
