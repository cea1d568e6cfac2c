"""Take trained agents out of a run: policies, weights, and models of each library."""
