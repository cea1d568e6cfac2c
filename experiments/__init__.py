"""What a person runs: the command line, training with records of it, comparisons, reports."""
