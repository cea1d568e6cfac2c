"""The files of a run: options, metrics, the lock, and whether its code is trusted."""
