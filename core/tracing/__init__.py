"""Jaxpr utilities, and hoisting random draws out of scans."""
