"""Training runs: train, resume, evaluate, render and plot them."""
