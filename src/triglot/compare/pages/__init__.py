"""The page of a comparison: its contents, cards and charts."""
