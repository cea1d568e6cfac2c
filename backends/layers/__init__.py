"""The layers whose parameters `translate` understands, and their layouts in each library."""
