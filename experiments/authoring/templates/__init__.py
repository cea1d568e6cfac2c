"""What `triglot new` writes; docs/extending.md shows the same text."""
