"""Pairs of two networks' arrays: as a mapping states, or guessed; and where statistics go."""
