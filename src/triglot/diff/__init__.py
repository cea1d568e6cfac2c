"""Compare two networks: which operation differs first, and the likely cause."""
