"""Reinforcement-learning mathematics: distributions, losses, normalization, replay."""
