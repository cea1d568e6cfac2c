"""The checker for environments."""
