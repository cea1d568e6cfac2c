"""What any agent may be extended by, as in `triglot train ppo+rnd`."""
