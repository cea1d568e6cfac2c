"""triglot beside the peers that a user has installed."""
