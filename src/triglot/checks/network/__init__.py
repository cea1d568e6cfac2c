"""The checker for networks."""
