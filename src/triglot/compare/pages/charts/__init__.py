"""Charts that only a comparison has."""
