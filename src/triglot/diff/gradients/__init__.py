"""Find why two networks with equal outputs have different gradients."""
