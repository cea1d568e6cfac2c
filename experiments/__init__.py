"""Command line, training runs, comparisons, plots and reports."""
