"""What the seams cost: a plain PPO as the yardstick, and paired measurements against it."""
