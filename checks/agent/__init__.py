"""The checker for agents."""
