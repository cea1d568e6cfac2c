"""Lookup tables for tabular agents, as plain arrays without a library."""
