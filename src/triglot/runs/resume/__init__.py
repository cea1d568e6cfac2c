"""Continue a run: its state, what changes, and starting from the weights of another run."""
