"""PNGs of runs: learning curves, ratings, populations, and values of the grid world."""
