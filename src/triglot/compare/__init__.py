"""Train one agent on several network libraries and report what differs."""
