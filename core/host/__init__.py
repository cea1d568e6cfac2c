"""Train and evaluate in environments that are stepped in Python."""
