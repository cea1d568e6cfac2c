"""A reader's file of networks, one for each library."""

from two_networks import networks  # of docs/guide/networks.md  # pyright: ignore

__all__ = ["networks"]
