"""Checkpoints of other programs: read, paired with a network, converted, checked and written."""
