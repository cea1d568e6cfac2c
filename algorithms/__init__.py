"""The algorithms, one file each: config, state, agent."""
