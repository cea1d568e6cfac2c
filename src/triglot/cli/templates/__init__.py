"""What `triglot new` writes; docs/guide shows the same text."""
