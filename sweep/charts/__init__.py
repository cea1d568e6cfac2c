"""The charts of a sweep."""
