"""The plots of a report: one Vega-Lite specification each, for the page and for the files."""
