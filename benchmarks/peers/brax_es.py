"""brax's own evolution strategy, at the setting of triglot's preset: a figure of docs/published.md.

python -m benchmarks.peers.brax_es --num-seeds 5
"""

import functools
from typing import Any

import tyro
from brax import envs
from brax.training.agents.es import networks, train

from .brax import give_replication

give_replication(train)


def main(env: str = "inverted_pendulum", total_steps: int = 1_000_000, num_seeds: int = 5) -> None:
    """Train, and print the greedy return of each seed.

    Args:
      env: of brax.
      total_steps: environment steps as brax counts them: those of a member's first episode.
      num_seeds: independent trainings, one after the other.
    """
    network: Any = functools.partial(networks.make_es_networks, hidden_layer_sizes=(16,))
    for seed in range(num_seeds):
        _, _, metrics = train.train(
            environment=envs.get_environment(env),
            num_timesteps=total_steps,
            episode_length=1000,
            population_size=32,  # mirrored pairs
            learning_rate=0.05,
            perturbation_std=0.1,
            l2coeff=0.0,
            fitness_shaping=train.FitnessShaping.CENTERED_RANK,
            normalize_observations=True,
            num_evals=2,
            deterministic_eval=True,
            max_devices_per_host=1,
            network_factory=network,
            seed=seed,
        )
        print(f"seed {seed}: {float(metrics['eval/episode_reward']):.1f}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
