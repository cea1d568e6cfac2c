"""Compiled programs: what XLA made of a function, and where two of its programs differ."""
