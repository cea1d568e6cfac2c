"""Train one library in a worker process."""
