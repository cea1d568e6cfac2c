"""The training loop: runner state, trainer, vectorized environments, rollouts, checkpoints."""
