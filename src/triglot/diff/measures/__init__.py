"""What is measured of two networks with the same weights."""
