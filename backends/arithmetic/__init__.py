"""The arithmetics of a network: how its sums are ordered, so that libraries agree bit for bit."""
