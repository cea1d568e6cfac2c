"""Algorithms, environments and networks by name."""
