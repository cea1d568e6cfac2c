"""Plots by matplotlib: learning curves and values of the grid world."""
