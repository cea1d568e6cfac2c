"""Training runs: train, resume, evaluate, render, plot and rate them; the registry and jobs."""
