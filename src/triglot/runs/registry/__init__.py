"""Algorithms, environments, networks and presets by name."""
