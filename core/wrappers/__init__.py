"""Wrappers: pure functions on environments, by class and as options of any environment's name."""
