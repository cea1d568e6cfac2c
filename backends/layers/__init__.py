"""The layers whose parameters `translate` understands, and the rules of their layouts."""
