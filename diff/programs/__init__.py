"""The traced programs of two networks: where they differ, and why."""
