"""Training and evaluation in environments that are stepped in Python."""
