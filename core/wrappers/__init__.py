"""Wrappers: pure functions on environments, by class and as options of any environment's name.

They are in `core`, because they work on any environment and import no library of environments.
"""
