"""The report of a comparison: a page, plots, tables and `comparison.json`."""
