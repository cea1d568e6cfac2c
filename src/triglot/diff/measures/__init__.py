"""What is measured of two networks at equal weights."""
